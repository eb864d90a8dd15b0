#!/usr/bin/env python3
"""Make of a run's result what other programs read: GGUF, a folder for Ollama, or one plain model.

    python training/export.py evening --to ollama
    python training/export.py evening --to gguf --precision q4_k_m
    python training/export.py evening --to merged

gguf    for llama.cpp and what builds on it: the model with the adapter merged into it, and the
        adapter by itself (LoRA) to put on top of a base model
ollama  the same model with a Modelfile
merged  a folder that loads with Transformers, in the precision of the base model

llama.cpp's converter and library are fetched when they are first needed. The adapter stays
unchanged. After training in 4 bits the base is the model in 16 bits.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hearth.after.export import TARGETS, ExportRequest, check, export_run
from hearth.base.entry import exit_status, hush, loading
from hearth.config.layout import Layout
from hearth.config.run import find_run


def main() -> int:
    """Export the result; return 0.

    Raises `HearthError` if nothing can be exported.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", metavar="RUN", help="a run: runs/NAME or NAME")
    parser.add_argument("--to", choices=TARGETS, required=True)
    parser.add_argument(
        "--precision",
        help="of gguf and ollama: f16, q8_0 (the default), q6_k, q5_k_m or q4_k_m",
    )
    parser.add_argument(
        "--best", action="store_true", help="the result with the lowest held-out loss (best/)"
    )
    parser.add_argument(
        "--folder", type=Path, help="a new folder to write (default: RUN/export/FORMAT)"
    )
    parser.add_argument(
        "--wheels", type=Path, metavar="FOLDER", help="take llama.cpp's packages from here"
    )
    parser.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="run Python code that comes with the base model; read it first",
    )
    given = parser.parse_args()
    layout = Layout.from_environment()
    request = ExportRequest(
        run=find_run(given.run, layout.results),
        to=given.to,
        precision=given.precision,
        best=given.best,
        folder=given.folder and given.folder.resolve(),
        trust_remote_code=given.trust_remote_code,
    )
    check(request, layout, lambda _: None)
    # Imported late, so that --help and a wrong request are answered soon.
    with loading():
        hush()
    export_run(request, layout, print, given.wheels)
    return 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
