"""A small set of preferences: first lines of Python's own docstrings against long stretches."""

from __future__ import annotations

import importlib
import inspect
import json
import random
import re
from pathlib import Path

_MODULES = [
    "os",
    "os.path",
    "json",
    "re",
    "random",
    "math",
    "statistics",
    "shutil",
    "pathlib",
    "tempfile",
    "subprocess",
    "threading",
    "queue",
    "socket",
    "datetime",
    "calendar",
    "time",
    "csv",
    "collections",
    "itertools",
    "functools",
    "textwrap",
    "string",
    "heapq",
    "bisect",
    "copy",
    "glob",
    "fnmatch",
    "hashlib",
    "hmac",
    "secrets",
    "urllib.parse",
    "http.client",
    "email.utils",
    "html",
    "zipfile",
    "tarfile",
    "gzip",
    "bz2",
    "lzma",
    "struct",
    "codecs",
    "locale",
    "gettext",
    "argparse",
    "logging",
    "getpass",
    "platform",
    "uuid",
    "base64",
    "binascii",
    "difflib",
    "pprint",
    "enum",
    "types",
    "operator",
    "fractions",
    "decimal",
    "cmath",
]
_CODE = re.compile(r"->|\(|\)=|>>>")
COUNT = 240


def pairs() -> list[dict[str, str]]:
    """Return pairs: a question on a function, its first line, and a longer text."""
    found, known = [], set[str]()
    for module in _MODULES:
        for name, value in sorted(vars(importlib.import_module(module)).items()):
            text = inspect.getdoc(value) if callable(value) else None
            if name.startswith("_") or not text:
                continue
            paragraphs = [" ".join(each.split()) for each in text.split("\n\n")]
            short, long = paragraphs[0], " ".join(paragraphs)[:400].rpartition(" ")[0]
            fits = 15 <= len(short) <= 110 and len(long) >= len(short) + 60
            if fits and short[0].isalpha() and short not in known and not _CODE.search(short):
                known.add(short)
                prompt = f"What does {module}.{name} of Python do?"
                found.append({"prompt": prompt, "chosen": short, "rejected": long})
    random.Random(1).shuffle(found)
    return found[:COUNT]


def write_sets(folder: Path) -> dict[str, Path]:
    """Write answers for sft, pairs and judged answers to `folder`; return the files by kind."""
    made = pairs()
    draw = random.Random(1)
    kinds = {
        "answers": [
            {"prompt": each["prompt"], "completion": each[draw.choice(("chosen", "rejected"))]}
            for each in made
        ],
        "pairs": made,
        "judged": [
            {"prompt": each["prompt"], "completion": each[side], "label": side == "chosen"}
            for each in made
            for side in ("chosen", "rejected")
        ],
    }
    files = {}
    for kind, records in kinds.items():
        files[kind] = folder / f"{kind}.jsonl"
        files[kind].write_text("".join(json.dumps(each) + "\n" for each in records))
    return files
