"""Measuring the parts of a model that is not on this node: a layer, the embeddings, the head."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from hearth.config import read_run, resolve_run, write_run
from hearth.config.layout import Layout
from hearth.measure.own_layers import kept_layers

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 80,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 4000,
    "tie_word_embeddings": False,
}


def test_the_parts_of_a_model_are_measured_without_its_weights_and_kept(tmp_path):
    """A head over 4000 tokens costs more than a layer, and both more than looking tokens up."""
    environment = {**os.environ, "HEARTH_WORKSPACE": str(tmp_path), "OMP_NUM_THREADS": "1"}
    run = resolve_run(
        {
            "model": "smollm2-135m",
            "parallel": "pipeline",
            "load_in_4bit": True,
            "sequence_length": 64,
            "micro_batch": 2,
        },
        tmp_path / "runs",
    )
    write_run(run, tmp_path / "run.yml")
    spec = {"config": CONFIG, "measure": True, "nproc": 1, "address": "127.0.0.1", "allowed": []}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "hearth.measure", "layers"),
            *("--run-file", str(tmp_path / "run.yml"), "--spec", str(tmp_path / "spec.json")),
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)["facts"]
    (speed,) = (rank["speed"] for rank in facts["layers"])
    assert facts["nproc"] == 1
    assert {tuple(part["sizes"]) for part in speed.values()} <= {(1,), (1, 2)}
    first = {name: part["seconds"][0] for name, part in speed.items()}
    assert first["embedding"] < min(first["layer"], first["head"])

    layout = Layout.from_environment(environment)
    of_one = {**environment, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    assert kept_layers(read_run(tmp_path / "run.yml"), layout, CONFIG, of_one) is not None
    assert kept_layers(run, layout, {**CONFIG, "hidden_size": 32}, of_one) is None
