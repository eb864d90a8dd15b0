"""The Python environment of a node."""
