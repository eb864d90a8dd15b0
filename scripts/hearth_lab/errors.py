"""The exception meant for people."""

from __future__ import annotations


class LabError(Exception):
    """A whole sentence: what is wrong, why, what to do."""
