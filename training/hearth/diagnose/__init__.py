"""From the log of a run to what went wrong: pure functions on text, no torch."""

from hearth.diagnose.log import RankError, first_failure, is_echo, killed_by, last_error

__all__ = ["RankError", "first_failure", "is_echo", "killed_by", "last_error"]
