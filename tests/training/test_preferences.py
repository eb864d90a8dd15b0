"""Objectives of preferences: any split equals one process, and a checkpoint has the reference."""

from __future__ import annotations

import pytest
from support.preferences import write_judged, write_pairs
from support.ranks import (
    figures,
    furthest,
    learned,
    metrics,
    succeeded,
    train_forked,
    trained,
)

STEPS = 20
UNEQUAL = ("--split", "4:2:1", "--micro-batch", 2)
OBJECTIVES = {
    "dpo": ("--objective", "dpo"),
    "ipo, with the chosen answers": (
        *("--objective", "dpo", "--dpo-loss", "ipo", "--sft-weight", 0.5),
    ),
    "conservative dpo, packed": (
        *("--objective", "dpo", "--label-smoothing", 0.1, "--packing", "on"),
    ),
    "orpo": ("--objective", "orpo"),
    "kto": ("--objective", "kto"),
}
FIGURES = (
    *("loss", "grad_norm", "chosen_reward", "rejected_reward", "reward_accuracy"),
    *("chosen_log_prob", "rejected_log_prob"),
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a file of pairs, and one of judged answers."""
    folder = tmp_path_factory.mktemp("preferences")
    return write_pairs(folder / "pairs.jsonl"), write_judged(folder / "judged.jsonl")


@pytest.fixture(scope="module")
def common(tiny_model, files):
    """Return a function with the arguments that every run of an objective has."""

    def arguments(what, steps=STEPS):
        pairs, judged = files
        return [
            *("--model", tiny_model, "--dataset", judged if "kto" in what else pairs),
            *("--sequence-length", 160, "--packing", "off", "--learning-rate", 0.01),
            *("--clip-norm", 0, "--global-batch", 7, "--max-steps", steps, "--precision", "fp64"),
            *("--split", "equal", "--micro-batch", 64, "--wandb", "off", *what),
        ]

    return arguments


@pytest.mark.parametrize("what", OBJECTIVES.values(), ids=OBJECTIVES)
def test_any_split_equals_one_process_in_float64(common, tmp_path, what):
    trained(tmp_path, "alone", 1, *common(what))
    found = trained(tmp_path, "split", 3, *common(what), *UNEQUAL)
    assert furthest(found, learned(tmp_path, "alone")) < 1e-9
    for figure in FIGURES:
        expected = figures(tmp_path / "runs" / "alone", "step", figure)
        assert len(expected) == STEPS
        assert figures(tmp_path / "runs" / "split", "step", figure) == pytest.approx(
            expected, rel=1e-9, abs=1e-9
        ), figure
    one, three = (metrics(tmp_path / "runs" / name, "evaluate") for name in ("alone", "split"))
    assert [each["when"] for each in one] == ["before", "after"]
    for before, after in zip(one, three, strict=True):
        for figure in ("loss", "perplexity", "reward_accuracy", "chosen_reward"):
            assert after[figure] == pytest.approx(before[figure], rel=1e-9, abs=1e-9), figure


@pytest.mark.rotated
@pytest.mark.parametrize("objective", ["dpo", "kto"])
def test_pairs_of_a_mixture_are_split_as_in_one_process(common, files, tmp_path, objective):
    other = write_pairs(tmp_path / "other.jsonl", 9)
    arguments = common(("--objective", objective), steps=6)
    arguments[arguments.index("--dataset") + 1] = f"{files[0]}=0.6,{other}=0.4"
    trained(tmp_path, "alone", 1, *arguments)
    found = trained(tmp_path, "split", 3, *arguments, *UNEQUAL)
    assert furthest(found, learned(tmp_path, "alone")) < 1e-9
    one, three = (metrics(tmp_path / "runs" / name, "evaluate")[-1] for name in ("alone", "split"))
    for figure in ("loss", "perplexity", "reward_accuracy", "chosen_reward"):
        assert three[figure] == pytest.approx(one[figure], rel=1e-9, abs=1e-9), figure


@pytest.mark.parametrize("objective", ["dpo", pytest.param("kto", marks=pytest.mark.rotated)])
def test_a_resumed_run_compares_with_the_model_as_it_was(common, tmp_path, objective):
    steady = ("--schedule", "constant", "--warmup-steps", 0)
    arguments = [*common(("--objective", objective), steps=8), *steady]
    trained(tmp_path, "whole", 2, *arguments)
    trained(tmp_path, "night", 2, *arguments, "--max-steps", 4)
    for table in (tmp_path / "cache").rglob("reference-*.json"):
        table.unlink()  # the checkpoint has it
    done = succeeded(train_forked(tmp_path, 1, "--resume", "night", "--max-steps", 8))
    assert "reference:" not in done.stdout
    assert furthest(learned(tmp_path, "night"), learned(tmp_path, "whole")) < 1e-9


@pytest.mark.rotated
def test_another_run_of_the_same_data_and_model_reads_the_reference(common, tmp_path):
    arguments = common(("--objective", "dpo"), steps=2)
    first = train_forked(tmp_path, 2, "--run-name", "first", *arguments)
    (table,) = (tmp_path / "cache").rglob("reference-*.json")
    again = train_forked(tmp_path, 2, "--run-name", "again", *arguments, "--beta", 0.5)
    table.write_text("{")
    damaged = train_forked(tmp_path, 2, "--run-name", "damaged", *arguments)
    computes = ["reference: comput" in succeeded(each).stdout for each in (first, again, damaged)]
    assert computes == [True, False, True]
    assert furthest(learned(tmp_path, "first"), learned(tmp_path, "damaged")) == 0


@pytest.mark.rotated
@pytest.mark.parametrize("objective", ["dpo", "kto"])
def test_local_steps_learn_preferences_nearly_as_common_ones(common, tmp_path, objective):
    arguments = common(("--objective", objective), steps=12)
    trained(tmp_path, "common", 2, *arguments)
    trained(tmp_path, "local", 2, *arguments, "--sync-every", 3)
    one, other = (metrics(tmp_path / "runs" / name, "evaluate")[-1] for name in ("common", "local"))
    assert other["loss"] == pytest.approx(one["loss"], rel=0.2)
    accuracies = figures(tmp_path / "runs" / "local", "step", "reward_accuracy")
    assert len(accuracies) == 4
    assert all(0 <= each <= 1 for each in accuracies)


@pytest.mark.rotated
@pytest.mark.parametrize("objective", ["dpo", "kto"])
def test_a_replayed_run_of_preferences_is_the_same_bit_for_bit(common, tmp_path, objective):
    arguments = [*common(("--objective", objective), steps=5), "--split", "2:1"]
    first = trained(tmp_path, "first", 2, *arguments, "--micro-batch", 2)
    again = trained(tmp_path, "again", 2, *arguments, "--replay", "first")
    assert furthest(first, again) == 0
