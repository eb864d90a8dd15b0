"""Facts that doctor collects on a node: health, copies, surroundings, runs of other users."""
