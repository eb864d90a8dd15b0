"""Two real data sets: the shipped one, and a corpus of small talk from a Python package.

The package is downloaded by pip from wherever it is set up to look, and read as the archive that
it is: nothing of it is installed or kept.
"""

from __future__ import annotations

import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import yaml

from tests.bench.lab import run

SHIPPED = "homelab-qa"
CORPUS = "chatterbot-corpus"
_VERSION = "1.3.3"  # BSD licence
_SHA256 = "86de5300afb9a80826386339d3bec79c0a72eb0358abb8327e2ecef5ae0ce154"
_MEMBERS = "chatterbot_corpus/data/english/"


def make_corpus(folder: Path) -> Path:
    """Download the corpus into `folder`, write its conversations as jsonl, and return the file."""
    wanted = folder / "corpus.txt"
    wanted.write_text(f"{CORPUS}=={_VERSION} --hash=sha256:{_SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    run([*command, "--requirement", str(wanted), "--dest", str(folder)], folder, dict(os.environ))
    (wheel,) = folder.glob("*.whl")
    path = folder / "corpus.jsonl"
    with zipfile.ZipFile(wheel) as archive, path.open("w", encoding="utf-8") as file:
        for name in sorted(archive.namelist()):
            if name.startswith(_MEMBERS) and name.endswith(".yml"):
                for told in yaml.safe_load(archive.read(name))["conversations"]:
                    if messages := _messages(told):
                        file.write(json.dumps({"messages": messages}) + "\n")
    return path


def _messages(told: list[Any]) -> list[dict[str, str]]:
    """Return a conversation as messages of alternating roles, up to the last answer."""
    whole = told[: len(told) // 2 * 2]
    roles = ("user", "assistant")
    return [{"role": roles[turn % 2], "content": str(words)} for turn, words in enumerate(whole)]
