"""A model that does not fit is refused before it is fetched; the estimate is near the truth."""

from __future__ import annotations

import pytest
import yaml
from support.facts import assert_names
from support.rank_memory import WITHIN, off, taken
from support.ranks import refused, succeeded, train, train_forked
from support.stand_in_hub import COMMIT, published, stand_in_hub

from hearth.fit.catalogue import listing

LARGE = ["--model", "llama2-13b", "--memory-limit", 2, "--wandb", "off"]


def test_what_does_not_fit_is_refused_and_the_hub_is_not_even_asked(tmp_path):
    with stand_in_hub() as hub:
        done = train(tmp_path, 1, *LARGE, "--precision", "fp16", **hub.variables)
    # All findings come at once.
    refused(done, "llama2-13b", "memory_limit", "2.0 GiB", "precision: fp16")
    assert not hub.asked


@pytest.mark.rotated
def test_the_sizes_that_the_hub_publishes_are_enough_to_refuse_a_model(tmp_path):
    with stand_in_hub() as hub:
        hub.models["house/large"] = published(tmp_path / "large", "llama2-13b")
        done = train(tmp_path, 1, *LARGE, "--model", "house/large", **hub.variables)
    refused(done, "house--large", "2.0 GiB")
    assert not any("safetensors" in path for path in hub.asked)


def test_the_presets_are_listed(tmp_path):
    done = succeeded(train_forked(tmp_path, 1, "--list-models"))
    assert done.stdout.rstrip() == listing()


@pytest.mark.rotated
def test_a_person_can_try_it_all_the_same(tmp_path):
    with stand_in_hub() as hub:
        done = train(tmp_path, 1, *LARGE, "--fit", "warn", **hub.variables)
    assert_names(done.stdout, "WARNING: llama2-13b")
    assert any("Llama-2-13b-hf" in path for path in hub.asked)


@pytest.mark.rotated
def test_the_revision_that_was_fetched_is_recorded(tmp_path, tiny_model, arguments):
    with stand_in_hub() as hub:
        hub.models["house/tiny"] = tiny_model
        given = [*arguments, "--model", "house/tiny", "--max-steps", 1, "--run-name", "night"]
        done = succeeded(train(tmp_path, 1, *given, **hub.variables))
    assert "not known" not in done.stdout
    source = yaml.safe_load((tmp_path / "runs" / "night" / "run.yml").read_text())["source"]
    assert source["revision"] == COMMIT

    succeeded(train_forked(tmp_path, 1, "--resume", "night", "--max-steps", 2))


@pytest.mark.rotated
@pytest.mark.slow
def test_the_estimate_is_near_what_a_rank_takes(tmp_path):
    """Two more sizes are measured by tests.bench.memory; see tests/bench/README.md."""
    assert abs(off(taken(tmp_path, "small", 1, 256, checkpointing=False))) <= WITHIN
