"""The exception meant for people."""

from __future__ import annotations


class LabError(Exception):
    """An error with a full-sentence message: the problem, its cause and its fix."""
