#!/usr/bin/env python3
"""Test whether this one machine can train, before it joins a cluster.

Shows what the machine has, whether the installed PyTorch supports it, and runs a forward and a
backward pass of a small transformer on the CPU and on each GPU against float64. With an NVIDIA GPU
it also loads a tiny random Llama in 4 bits with Unsloth, adds an adapter and runs both passes.

Exit status: 0 everything here works (a machine without an NVIDIA GPU trains on its CPU);
1 it can train, but an NVIDIA GPU here cannot be used; 2 it cannot train.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import platform
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PYTHON = REPOSITORY / ".venv" / "bin" / "python"


def enter_venv() -> None:
    """Start this script again in .venv if this Python does not have Hearth; exit without .venv."""
    if importlib.util.find_spec("hearth") is not None:
        return
    if not PYTHON.exists() or Path(sys.prefix) == PYTHON.parent.parent:
        print(f"{__file__}: there is no .venv with Hearth; run ./scripts/setup", file=sys.stderr)
        sys.exit(2)
    os.execv(PYTHON, [str(PYTHON), *sys.argv])


def main() -> int:
    """Examine the machine and print the report; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    arguments = parser.parse_args()
    enter_venv()
    from hearth.node.single_gpu import examine
    from hearth_controller.doctor.single import show_single

    examined = examine(REPOSITORY, "./scripts/setup")
    facts = {"status": examined.status, **dataclasses.asdict(examined)}
    if arguments.json:
        print(json.dumps(facts, indent=2))
    else:
        name = platform.node()
        lines, _ = show_single({name: {"facts": facts}}, {name: ""}, {})
        print("\n".join(text for _, text in lines))
    return examined.status


if __name__ == "__main__":
    sys.exit(main())
