"""NVIDIA cards, the driver decision, and its packages."""
