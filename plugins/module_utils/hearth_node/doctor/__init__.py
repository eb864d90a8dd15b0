"""Facts that doctor collects on a node: health, GPU use, copies, surroundings."""
