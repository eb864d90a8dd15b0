"""Compatibility of a model with the settings of a run."""

from __future__ import annotations

import json
import re
import shutil
from collections import namedtuple

import pytest
from support.facts import refuses
from support.tiny_model import make_dataset, make_model

from hearth.base.errors import HearthError
from hearth.config import resolve_run
from hearth.config.layout import Layout
from hearth.model.compatibility import weights_in
from hearth.prepare.node import prepare


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def prepared(tmp_path, tiny):
    """Return a function that prepares a run on the tiny model with a changed config.json."""
    folder = shutil.copytree(tiny, tmp_path / "model")
    data = make_dataset(tmp_path / "words.jsonl")
    layout = Layout(*(tmp_path / name for name in ("runs", "runs", "data", "cache")), False)

    def act(changed, **settings):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changed))
        given = {"model": str(folder), "dataset": str(data), "sequence_length": 96, **settings}
        return prepare(resolve_run(given, layout.results), layout, say=lambda _: None)

    return act


WHOLE = {"lora": False}
SCRATCH = {"lora": False, "scratch": True}


def test_a_model_that_is_drawn_must_know_every_token_of_the_data(prepared):
    with refuses(HearthError, "config.json: vocab_size", "40", "257"):
        prepared({"vocab_size": 40, "pad_token_id": None}, **SCRATCH)


def test_a_configuration_that_describes_no_model_is_named(prepared):
    with refuses(HearthError, "config.json", "heads"):
        prepared({"num_attention_heads": 7}, **SCRATCH)


def test_quantised_weights_cannot_learn_themselves(prepared):
    quantised = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
    with refuses(HearthError, "quantised", "lora=off", "lora=on"):
        prepared(quantised, **WHOLE)


LARGE = {"hidden_size": 1024, "intermediate_size": 8192, "num_hidden_layers": 10}


@pytest.fixture
def small_disk(monkeypatch):
    """A stand-in of a disk with 2 GiB left, where LARGE has 280 million weights."""
    disk = namedtuple("disk", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda _: disk(1 << 40, 0, 2 << 30))


def test_checkpoints_of_a_whole_model_need_room(prepared, small_disk):
    needs = []
    for every in (1, 4):
        with refuses(HearthError, "2048 MiB left") as refused:
            prepared(LARGE, checkpoint_keep=1, eval_every=None, sync_every=every, **SCRATCH)
        needs += [int(re.search(r"needs (\d{4,}) MiB", str(refused.value)).group(1))]
    assert prepared({"num_hidden_layers": 1, "hidden_size": 32}, **SCRATCH)
    # Rounds keep a momentum more: of each weight two checkpoints hold 4 numbers instead of 3,
    # beside two models.
    assert needs[1] == pytest.approx(needs[0] * 10 / 8, abs=2)


def test_a_weight_that_two_layers_share_counts_once(tmp_path):
    apart = weights_in(make_model(tmp_path / "apart"), own_code=False)
    tied = weights_in(make_model(tmp_path / "tied", tie_word_embeddings=True), own_code=False)
    assert apart - tied == 32 * (256 + 2)
