"""Inspect this node for a run, and change nothing. Prints one line of JSON."""

from __future__ import annotations

import sys

from hearth.base.command import run_verb
from hearth.prepare.look import look

if __name__ == "__main__":
    sys.exit(run_verb({"look": look}))
