"""Hearth: the unequal GPU machines of a home as one training cluster."""

__version__ = "0.1.0"
