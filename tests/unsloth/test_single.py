"""The test of a single machine, with the real Unsloth."""

from __future__ import annotations

import json
import os
import subprocess

from support.unsloth_ranks import PYTHON, variables
from support.waiting import HANG

_TRY = """
import dataclasses, json
from hearth.node.passes import run_unsloth
facts = {"torch_error": "", "devices": 1, "gpus": [], "arch": [], "torch": "", "cuda": "13.0"}
print(json.dumps(dataclasses.asdict(run_unsloth(facts))))
"""


def test_unsloth_loads_in_4_bits_and_computes_both_passes(tmp_path):
    done = subprocess.run(
        [PYTHON, "-c", _TRY],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **variables("8.9")},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    print(done.stderr)
    tried = json.loads(done.stdout.splitlines()[-1])
    assert (tried["failed"], tried["error"], tried["not_tried"]) == ("", "", "")
    assert 4 < tried["loss"] < 8  # a random model of 259 tokens: ln 259 = 5.6
    assert list(tmp_path.glob("*unsloth*")) == []  # the code that it generates
