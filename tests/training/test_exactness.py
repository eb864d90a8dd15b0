"""The result depends neither on the choice of ranks nor on an interruption."""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from support.ranks import (
    apart,
    beginning,
    change,
    command,
    environment,
    figures,
    furthest,
    learned,
    loaded,
    metrics,
    refused,
    stopped,
    succeeded,
    train_forked,
    trained,
)
from support.tiny_model import make_tokenizer
from support.waiting import until

from hearth.base.files import sha256_of
from hearth.data.load import load_data
from hearth.ranks.world import World
from hearth.trainer.compute import Compute
from hearth.trainer.objective import NextToken, StepCounts
from hearth.trainer.work import Work

STEPS = 10


@dataclass(frozen=True)
class Case:
    """This many ranks, compared with one that computes all rows of a step at once.

    Attributes:
        how: arguments that must not matter; `--replay plans` is another plan in every step.
        what: arguments that matter, and that the one rank has as well.
        within: largest difference of a number; Muon amplifies what rounding leaves in directions
            without a gradient, up to 3.4445 ** 5 times in a step.
        daily: whether every day plays it; others have their turn.
    """

    ranks: int
    how: tuple[object, ...]
    what: tuple[object, ...] = ()
    within: float = 1e-9
    daily: bool = True


UNEQUAL = ("--split", "4:2:1", "--micro-batch", 2)
CLIPPED = ("--clip-norm", 0.05)
MUON = ("--lora", "off", "--scratch", "--optimizer", "muon", "--weight-decay", 0.1)
# Rows are shuffled, so the same examples make up a step only where it holds all of them.
WHOLE_EPOCH = ("--global-batch", 64)
CASES = {
    "1 rank, accumulated": Case(1, ("--micro-batch", 2), daily=False),
    "2 ranks, equal, row by row": Case(2, ("--micro-batch", 1), daily=False),
    "2 ranks, one idle": Case(2, ("--split", "1:0", "--micro-batch", 3), daily=False),
    "3 ranks, unequal": Case(3, UNEQUAL),
    "3 ranks, other plans": Case(3, ("--replay", "plans")),
    "3 ranks, clipped": Case(3, UNEQUAL, what=CLIPPED, daily=False),
    "3 ranks, DoRA": Case(3, UNEQUAL, what=("--dora", "--rslora"), daily=False),
    "3 ranks, noise": Case(3, UNEQUAL, what=("--neftune", 5), daily=False),
    "3 ranks, noise on padded rows": Case(
        3,
        (*UNEQUAL, "--packing", "off"),
        what=(*WHOLE_EPOCH, "--packing", "off", "--neftune", 5),
        daily=False,
    ),
    "3 ranks, whole model": Case(
        3,
        UNEQUAL,
        what=(
            "--lora",
            "off",
        ),
        daily=False,
    ),
    "3 ranks, from scratch": Case(3, UNEQUAL, what=("--lora", "off", "--scratch"), daily=False),
    "3 ranks, Muon": Case(3, UNEQUAL, what=MUON, within=1e-8),
    "2 ranks, Muon, one idle": Case(
        2, ("--split", "1:0", "--micro-batch", 3), MUON, 1e-8, daily=False
    ),
    "3 ranks, not packed": Case(3, (*UNEQUAL, "--packing", "off"), what=WHOLE_EPOCH, daily=False),
}


@pytest.fixture(scope="module")
def common(tiny_model, tiny_data):
    """Return the arguments that every run of the table has."""
    return [
        *("--model", tiny_model, "--dataset", tiny_data, "--sequence-length", 96),
        *("--learning-rate", 0.01, "--clip-norm", 0, "--global-batch", 7, "--max-steps", STEPS),
        *("--split", "equal", "--micro-batch", 64, "--precision", "fp64"),
        *("--wandb", "off", "--eval-held-out", "off"),
    ]


@pytest.fixture(scope="module")
def alone(tmp_path_factory, common):
    """Return a function that trains `alone` in one rank, once per setting, in a new folder."""
    folders = {}

    def run(what):
        if what not in folders:
            folders[what] = tmp_path_factory.mktemp("alone")
            trained(folders[what], "alone", 1, *common, *what)
        return folders[what]

    return run


def write_plans(record, rows_of_steps, ranks):
    """Write a record of another random plan in each step, idle ranks among them."""
    random = np.random.default_rng(0)
    plans = [
        {
            "kind": "plan",
            "step": step,
            "rows": random.multinomial(rows, random.dirichlet([0.5] * ranks)).tolist(),
            "micro_batch": random.integers(1, 4, ranks).tolist(),
        }
        for step, rows in enumerate(rows_of_steps, 1)
    ]
    assert any(0 in plan["rows"] for plan in plans)
    record.parent.mkdir(parents=True)
    record.write_text("".join(json.dumps(plan) + "\n" for plan in plans))


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[] if case.daily else pytest.mark.rotated)
        for name, case in CASES.items()
    ],
)
def test_any_split_equals_one_process_in_float64(alone, common, tmp_path, case):
    folder = alone(case.what)
    before = metrics(folder / "runs" / "alone", "step")
    rows = [sum(step["rows_by_rank"]) for step in before]
    if "--replay" in case.how:
        write_plans(tmp_path / "runs" / "plans" / "metrics.jsonl", rows, case.ranks)
    found = trained(tmp_path, "split", case.ranks, *common, *case.what, *case.how)
    assert furthest(found, learned(folder, "alone")) < case.within
    steps = metrics(tmp_path / "runs" / "split", "step")
    assert len(steps) == STEPS
    for figure in ("loss", "grad_norm", "learning_rate", "epoch"):
        expected = [step[figure] for step in before]
        assert [step[figure] for step in steps] == pytest.approx(expected), figure


def test_the_steps_of_the_table_are_unequal(alone):
    steps = metrics(alone(()) / "runs" / "alone", "step")
    rows = {sum(step["rows_by_rank"]) for step in steps}
    assert len(rows) == 2  # seven, and what is left at the end of an epoch


@pytest.mark.rotated
def test_clipping_bites_in_the_table(alone):
    plain, clipped = alone(()), alone(CLIPPED)
    limit = CLIPPED[1]
    norms = figures(clipped / "runs" / "alone", "step", "grad_norm")
    assert min(norms) > limit
    assert furthest(learned(plain, "alone"), learned(clipped, "alone")) > 1e-3


@pytest.fixture(scope="module")
def computing(tmp_path_factory, tiny_model, tiny_data):
    """Return the tiny model with an adapter that does something, and rows to compute."""
    model = loaded(tiny_model)
    with torch.no_grad():
        for _, parameter in model.trainable():
            parameter.normal_(std=0.1)
    rows = load_data(
        tiny_data, make_tokenizer(), sequence_length=96, packing=True, held_out=0.1, seed=1,
        cache=tmp_path_factory.mktemp("tokens"),
    ).train  # fmt: skip
    clear = model.network.zero_grad
    scale, work = lambda loss: loss, Work(World())
    compute = Compute(model, NextToken(), rows, nullcontext, clear, scale, work)

    def gradient(own, most, denominator):
        compute.gradients(own, most, StepCounts(denominator), int, print)
        parts = [parameter.grad for _, parameter in model.trainable()]
        return torch.cat([torch.zeros(1) if part is None else part.flatten() for part in parts])

    return rows, gradient


RANKS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), min_size=1, max_size=4).filter(
    lambda ranks: any(rows for rows, _ in ranks)
)


@settings(max_examples=25, deadline=None)
@given(ranks=RANKS, seed=st.integers(0, 100))
def test_the_gradient_of_a_step_does_not_depend_on_who_computes_which_rows(computing, ranks, seed):
    """`ranks`: rows, and most of them at once, of each."""
    rows, gradient = computing
    total = sum(count for count, _ in ranks)
    batch = np.random.default_rng(seed).permutation(len(rows))[:total]
    denominator = int(rows.label_tokens[batch].sum())
    whole = gradient(batch, total, denominator)
    parts = np.split(batch, np.cumsum([count for count, _ in ranks])[:-1])
    summed = sum(
        gradient(own, most, denominator)
        for own, (_, most) in zip(parts, ranks, strict=True)
        if len(own)
    )
    assert (summed - whole).abs().max() <= 1e-12 * whole.abs().max()


@pytest.mark.parametrize(
    ("what", "settings"),
    [
        pytest.param((), {}, id="adapter"),
        pytest.param(MUON, {"lora": "off", "scratch": True}, id="Muon", marks=pytest.mark.rotated),
    ],
)
def test_a_split_changes_little_of_what_was_learned_in_float32(
    common, tmp_path, tiny_model, what, settings
):
    common = [*common, "--precision", "fp32", *what]
    start = beginning({"model": str(tiny_model), "precision": "fp32"} | settings)
    expected = trained(tmp_path, "alone", 1, *common)
    found = trained(tmp_path, "split", 3, *common, *UNEQUAL)
    expected, found = change(expected, start), change(found, start)
    assert expected.norm() > 0.1
    assert apart(found, expected) < 1e-3


def kill_after(step, cwd, run, ranks, *arguments):
    """Train until `step` steps are recorded, then kill all ranks as a crash would."""
    process = psutil.Popen(
        command(ranks, "--run-name", run, *arguments),
        cwd=cwd,
        env=environment(cwd),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: len(metrics(cwd / "runs" / run, "step")) >= step)
    finally:
        for each in [*process.children(), process]:
            each.kill()
        process.wait(10)


def test_muon_goes_on_bit_for_bit_with_all_its_state(tmp_path, arguments):
    more = [*arguments, *MUON, "--max-steps", 5, "--split", "2:1"]
    expected = trained(tmp_path, "whole", 2, *more)
    stopped(tmp_path, "paused", 2, *more)
    succeeded(train_forked(tmp_path, 2, "--resume", "paused"))
    assert furthest(learned(tmp_path, "paused"), expected) == 0
    runs = tmp_path / "runs"
    assert figures(runs / "paused", "step", "loss") == figures(runs / "whole", "step", "loss")
    (start,), (end,) = (metrics(runs / "whole", kind) for kind in ("start", "end"))
    assert end["exchanged_bytes"] == 5 * start["exchange_bytes"]


@pytest.mark.rotated
@pytest.mark.parametrize(
    ("step", "every"), [(9, 4), (3, 1000)], ids=["from a checkpoint", "from the beginning"]
)
def test_a_killed_and_resumed_run_equals_the_uninterrupted_one_bit_for_bit(
    tmp_path, arguments, step, every
):
    more = [*arguments, "--max-steps", 150, "--checkpoint-every", every, "--split", "2:1"]
    expected = trained(tmp_path, "whole", 2, *more)
    kill_after(step, tmp_path, "broken", 2, *more)
    whole, broken = (tmp_path / "runs" / run for run in ("whole", "broken"))
    assert metrics(broken, "end") == []
    done = succeeded(train_forked(tmp_path, 2, "--resume", "broken"))
    assert (": step 0 " in done.stdout) == (every > step)
    assert furthest(learned(tmp_path, "broken"), expected) == 0
    assert figures(broken, "step", "step") == list(range(1, 151))
    assert figures(broken, "step", "loss") == figures(whole, "step", "loss")


@pytest.mark.rotated
def test_more_steps_take_the_learning_rate_from_the_longer_curve(tmp_path, arguments):
    trained(tmp_path, "night", 1, *arguments, "--max-steps", 4)
    succeeded(train_forked(tmp_path, 1, "--resume", "night", "--max-steps", 8))
    rates = figures(tmp_path / "runs" / "night", "step", "learning_rate")
    assert len(rates) == 8
    assert all(rate > 0 for rate in rates[4:])
    assert rates[4:] == sorted(rates[4:], reverse=True)


@pytest.mark.parametrize(
    "what",
    [
        pytest.param((), id="adapter"),
        pytest.param(
            (
                "--lora",
                "off",
            ),
            id="whole model",
            marks=pytest.mark.rotated,
        ),
    ],
)
def test_the_best_is_kept_and_survives_a_resume_on_other_ranks(tmp_path, arguments, what):
    more = [*arguments, *what, "--eval-held-out", "--eval-every", 4, "--checkpoint-every", 8]
    trained(tmp_path, "night", 2, *more, "--learning-rate", 0.05, "--max-steps", 8)
    folder = tmp_path / "runs" / "night"
    told = metrics(folder, "evaluate")
    assert figures(folder, "evaluate", "step") == [0, 4, 8]
    assert figures(folder, "evaluate", "when") == ["before", "during", "after"]
    kept, last = learned(tmp_path, "night", "best"), learned(tmp_path, "night")
    assert (furthest(kept, last) == 0) == (told[2]["loss"] < told[1]["loss"])

    shutil.rmtree(folder / "best")
    succeeded(train_forked(tmp_path, 1, "--resume", "night", "--max-steps", 12))
    better = metrics(folder, "evaluate")[-1]["loss"] < min(each["loss"] for each in told[1:])
    again, last = learned(tmp_path, "night", "best"), learned(tmp_path, "night")
    assert furthest(again, last if better else kept) == 0


@pytest.mark.rotated
def test_what_was_to_be_judged_at_a_stop_is_judged_when_the_run_goes_on(tmp_path, arguments):
    more = [*arguments, "--eval-every", 1, "--max-steps", 3]
    trained(tmp_path, "whole", 2, *more)
    stopped(tmp_path, "paused", 2, *more)
    succeeded(train_forked(tmp_path, 2, "--resume", "paused"))
    whole, paused = (tmp_path / "runs" / run for run in ("whole", "paused"))
    judged, again = (
        [(each["step"], each["when"], each["loss"]) for each in metrics(run, "evaluate")]
        for run in (whole, paused)
    )
    assert [step for step, *_ in again] == [1, 2, 3]
    assert again == judged
    assert furthest(*(learned(tmp_path, run, "best") for run in ("whole", "paused"))) == 0
    (facts,) = (paused / "checkpoints").glob("step-00000001/checkpoint.json")
    assert not json.loads(facts.read_text())["unjudged"]


@pytest.mark.rotated
def test_a_checkpoint_is_taken_after_some_minutes_too(tmp_path, arguments):
    soon = ("--checkpoint-every", 1000, "--checkpoint-minutes", 1e-6)
    trained(tmp_path, "night", 2, *arguments, "--max-steps", 4, *soon)
    folder = tmp_path / "runs" / "night"
    assert figures(folder, "checkpoint", "step") == [1, 2, 3, 4]
    trained(tmp_path, "day", 1, *arguments, "--max-steps", 4, *soon[:2])
    folder = tmp_path / "runs" / "day"
    assert figures(folder, "checkpoint", "step") == [4]


@pytest.mark.rotated
def test_what_auto_came_to_at_the_beginning_holds_on_other_nodes(tmp_path, arguments):
    """The record is changed to that of nodes which had taken bf16; these here would take fp32."""
    trained(tmp_path, "night", 1, *arguments, "--max-steps", 2)
    (facts,) = (tmp_path / "runs" / "night" / "checkpoints").glob("step-*/checkpoint.json")
    begun = json.loads(facts.read_text())
    assert begun["precision"] == "fp32"
    facts.write_text(json.dumps(begun | {"precision": "bf16"}))
    succeeded(train_forked(tmp_path, 1, "--resume", "night", "--max-steps", 4))
    (*_, last) = metrics(tmp_path / "runs" / "night", "start")
    assert (last["step"], last["precision"]) == (2, "bf16")


@pytest.mark.rotated
def test_a_run_does_not_go_on_from_other_data_or_another_model(
    tmp_path, arguments, tiny_model, tiny_data
):
    model = shutil.copytree(tiny_model, tmp_path / "tiny")
    data = shutil.copy(tiny_data, tmp_path / "words.jsonl")
    here = [*arguments, "--model", model, "--dataset", data, "--max-steps", 2]
    trained(tmp_path, "night", 1, *here)
    folder = tmp_path / "runs" / "night"

    def resumed(*facts):
        done = train_forked(tmp_path, 2, "--resume", "night", "--max-steps", 4)
        assert len(metrics(folder, "step")) == 2
        return refused(done, "'night'", "new run", *facts)

    weights = model / "model.safetensors"
    kept = weights.read_bytes()
    tensors = load_file(weights)
    tensors["model.norm.weight"] += 1
    save_file(tensors, weights, {"format": "pt"})
    said = resumed("model:")
    assert "data:" not in said.partition("error:")[2]
    weights.write_bytes(kept)

    # A data set that has a name may change behind it; of a file the run has the checksum.
    lines = data.read_text()
    record = (folder / "run.yml").read_text()
    data.write_text(lines.replace("lamp", "bulb"))
    (folder / "run.yml").write_text(record.replace(sha256_of(tiny_data), sha256_of(data)))
    said = resumed("data:")
    assert "model:" not in said.partition("error:")[2]

    # The same bytes in another folder are the same.
    data.write_text(lines)
    moved = record.replace(str(model), str(model.rename(tmp_path / "moved")))
    (folder / "run.yml").write_text(
        moved.replace(str(data), str(data.rename(tmp_path / "w.jsonl")))
    )
    succeeded(train_forked(tmp_path, 2, "--resume", "night", "--max-steps", 4, "--split", "1:2"))
    assert figures(folder, "step", "step") == [1, 2, 3, 4]


@pytest.mark.rotated
def test_nodes_that_went_on_without_each_other_go_on_together_from_one_of_both(tmp_path, arguments):
    nodes = [tmp_path / f"rank{rank}" for rank in range(2)]
    more = ("--run-name", "night", *arguments, "--precision", "fp64")
    succeeded(train_forked(tmp_path, 2, *more, "--max-steps", 2, apart=True))

    def alone(node, steps):
        how = ("--resume", "night", "--max-steps", steps, "--checkpoint-every", 4)
        succeeded(train_forked(node, 1, *how))

    alone(nodes[0], 4)
    alone(nodes[1], 8)  # at another learning rate, and its power is cut before the end
    shutil.rmtree(nodes[1] / "runs" / "night" / "checkpoints" / "step-00000008")
    shutil.copytree(nodes[0], tmp_path / "apart")
    succeeded(
        train_forked(
            tmp_path, 2, "--resume", "night", "--max-steps", 8, "--split", "1:1", apart=True
        )
    )
    found, other = (learned(node, "night") for node in nodes)
    assert furthest(found, other) == 0
    alone(tmp_path / "apart", 8)
    assert furthest(found, learned(tmp_path / "apart", "night")) < 1e-9
