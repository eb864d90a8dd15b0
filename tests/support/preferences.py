"""Data sets of preferences for the tiny model: short answers are better than long ones."""

from __future__ import annotations

import json
import random
from pathlib import Path

PAIRS = 40


def records(count: int = PAIRS, seed: int = 0) -> list[dict[str, str]]:
    """Return pairs: a prompt, a short chosen answer and a longer rejected one."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        word = "".join(draw.choices("abcdefgh", k=draw.randint(2, 6)))
        other = "".join(draw.choices("stuvwxyz", k=draw.randint(4, 12)))
        found.append({"prompt": f"say {number}", "chosen": word, "rejected": f"{other} {word}"})
    return found


def write_pairs(path: Path, count: int = PAIRS) -> Path:
    """Write pairs to a .jsonl file and return it."""
    path.write_text("".join(json.dumps(each) + "\n" for each in records(count)))
    return path


def write_judged(path: Path, count: int = PAIRS) -> Path:
    """Write the same answers, each with a label of its own, to a .jsonl file and return it."""
    lines = [
        {"prompt": each["prompt"], "completion": each[side], "label": side == "chosen"}
        for each in records(count)
        for side in ("chosen", "rejected")
    ]
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path
