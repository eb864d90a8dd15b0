"""Compatibility of a model with the settings of a run."""

from __future__ import annotations

import json
import re
import shutil

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


SCRATCH = {"lora": False, "scratch": True}
QUANTISED = {"quant_method": "bitsandbytes", "load_in_4bit": True}


@pytest.mark.parametrize(
    ("changed", "settings", "facts"),
    [
        (
            {"vocab_size": 40, "pad_token_id": None},
            SCRATCH,
            ["config.json: vocab_size", "40", "257"],
        ),
        ({"num_attention_heads": 7}, SCRATCH, ["config.json", "heads"]),
        ({"quantization_config": QUANTISED}, {"lora": False}, ["quantised", "lora=off", "lora=on"]),
    ],
    ids=["too few tokens", "no model", "quantised weights"],
)
def test_a_configuration_that_does_not_suit_the_run_is_named(prepared, changed, settings, facts):
    with refuses(HearthError, *facts):
        prepared(changed, **settings)


# 280 million weights.
LARGE = {"hidden_size": 1024, "intermediate_size": 8192, "num_hidden_layers": 10}


def test_checkpoints_of_a_whole_model_need_room(prepared, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=2 << 30))
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
