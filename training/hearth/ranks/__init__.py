"""A rank and its process group: addresses of the world, memory, temperature."""
