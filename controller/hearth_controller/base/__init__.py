"""Helpers of the controller: the screen, paths as typed, verdicts."""
