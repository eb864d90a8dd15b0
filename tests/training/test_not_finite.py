"""A row that gives no finite gradient costs its step and is named; the run goes on."""

from __future__ import annotations

import json
import threading

import pytest
import torch
from support.facts import assert_names
from support.ranks import learned, metrics, succeeded, train_forked
from support.several import on_ranks
from support.tiny_model import POISON, poison

from hearth.config import resolve_run, write_run
from hearth.config.layout import Layout
from hearth.model import precision
from hearth.model.load import load_model
from hearth.node.prepare import prepare
from hearth.node.speed import measured_here
from hearth.ranks.world import join
from hearth.trainer import assembly


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory, tiny_model):
    return poison(tiny_model, tmp_path_factory.mktemp("poisoned") / "tiny")


def data(path, bad_lines):
    lines = [
        {"text": f"a plain line of text, number {number} {POISON * (number in bad_lines)}"}
        for number in range(1, 25)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def trained(cwd, model, bad_lines, *more):
    return train_forked(
        cwd,
        2,
        *("--run-name", "night", "--model", model, "--dataset", data(cwd / "x.jsonl", bad_lines)),
        *("--sequence-length", 64, "--packing", "off", "--held-out", 0, "--global-batch", 6),
        *("--epochs", 1, "--split", "equal", "--micro-batch", 3),
        *("--wandb", "off", "--eval-held-out", "off", *more),
    )


def the_skip(cwd, done):
    """Return the only skip of a run that ended well, which names its line, and its output."""
    (skip,) = metrics(cwd / "runs" / "night", "skip")
    (line,) = skip["rows"]
    assert line.endswith("x.jsonl:7")
    (said,) = [each for each in succeeded(done).stdout.splitlines() if line in each]
    assert_names(said, f"row {line}")
    return skip, said


def test_the_step_is_skipped_on_all_ranks_and_the_line_named(tmp_path, poisoned):
    done = trained(tmp_path, poisoned, {7})
    skip, said = the_skip(tmp_path, done)
    assert_names(said, f"step {skip['step']} skipped")
    steps = metrics(tmp_path / "runs" / "night", "step")
    assert [step["step"] for step in steps if step["skipped"]] == [skip["step"]]
    assert done.stdout.count("  1 skipped") == 1
    assert not any(step["scaler_skipped"] for step in steps)
    assert len(steps) == 4
    rates = [step["learning_rate"] for step in steps]
    assert len(set(rates)) == len(rates)  # the skipped step has used up its own


@pytest.mark.parametrize(
    ("how", "facts"),
    [
        pytest.param((), ["3 steps", "step 3"], id="steps"),
        pytest.param(
            ("--sync-every", 2, "--epochs", 2),
            ["3 rounds", "step 6"],
            id="rounds",
            marks=pytest.mark.rotated,
        ),
    ],
)
def test_three_in_a_row_end_the_run_and_name_the_rows(tmp_path, poisoned, how, facts):
    done = trained(tmp_path, poisoned, set(range(1, 25)), *how)
    assert done.returncode != 0
    assert_names(done.stderr, *facts, "learning_rate", "precision=fp32")
    assert "x.jsonl:" in done.stderr
    assert len(metrics(tmp_path / "runs" / "night", "skip")) == 3


@pytest.mark.rotated
@pytest.mark.parametrize("how", [(), ("--sync-every", 2)], ids=["steps", "rounds"])
def test_a_run_in_which_no_step_was_taken_has_failed(tmp_path, poisoned, how):
    done = trained(tmp_path, poisoned, set(range(1, 25)), "--global-batch", 12, *how)
    assert done.returncode != 0
    assert_names(done.stderr, "night", "nothing was learned", "2 steps")


@pytest.mark.rotated
def test_a_rank_that_learns_by_itself_skips_by_itself_and_names_its_line(tmp_path, poisoned):
    skip, said = the_skip(tmp_path, trained(tmp_path, poisoned, {7}, "--sync-every", 2))
    assert_names(said, "1 local step", "the 2", f"step {skip['step'] + 1}")
    steps = metrics(tmp_path / "runs" / "night", "step")
    assert [step["skipped"] for step in steps if step["step"] == skip["step"]] == [1]
    assert sum(step["skipped"] for step in steps) == 1
    numbers = learned(tmp_path, "night")
    assert all(bool(each.isfinite().all()) for each in numbers.values())
    assert any(bool(each.any()) for name, each in numbers.items() if "_B" in name)


@pytest.mark.rotated
def test_rounds_from_which_something_was_learned_do_not_end_the_run(tmp_path, poisoned):
    """A round is an epoch here, so each has the one bad line."""
    succeeded(trained(tmp_path, poisoned, {7}, "--sync-every", 4, "--epochs", 4))
    skips = metrics(tmp_path / "runs" / "night", "skip")
    assert [each["step"] for each in skips] == [4, 8, 12, 16]
    assert all(each["rows"][0].endswith("x.jsonl:7") for each in skips)


@pytest.fixture
def in_fp16(tmp_path, tiny_model, tiny_data, monkeypatch):
    """Return a function that trains a rank on a CPU that is declared to train in fp16.

    Its loss scale is far too large to begin with.
    """
    for module in ("hearth.node.prepare", "hearth.model.precision"):
        monkeypatch.setattr(f"{module}.supported", lambda device: ("fp32", "fp16"))
    monkeypatch.setattr(
        precision, "loss_scaler", lambda _, device: torch.amp.GradScaler(device.type, 2.0**30)
    )
    # While it loads a model, Transformers replaces functions of its own, for all threads alike: a
    # second one would leave them replaced.
    one_at_a_time = threading.Lock()

    def load(*arguments):
        with one_at_a_time:
            return load_model(*arguments)

    monkeypatch.setattr(assembly, "load_model", load)

    def train(world, runs, **changed):
        given = {
            "model": str(tiny_model), "dataset": str(tiny_data), "run": "night",
            "packing": True, "epochs": 1, "warmup_steps": 5,
            "precision": "fp16", "sequence_length": 96, "split": "equal", "micro_batch": 4,
            "global_batch": 4, "learning_rate": 0.01, "wandb": "off",
            "eval_held_out": False, **changed,
        }  # fmt: skip
        cache = tmp_path / "cache"
        layout = Layout(runs, runs, cache / "data", cache / "models", in_workspace=False)
        run = resolve_run(given, runs)
        write_run(run, runs / "night" / "run.yml")
        with one_at_a_time:
            prepared = prepare(run, layout, print)
        run = prepared.run
        measured = measured_here(run, layout, prepared, print)
        assert assembly.assemble(run, layout, prepared, measured, world).train() == "finished"

    return train


@pytest.mark.rotated
def test_steps_in_which_the_loss_scaler_looks_for_its_scale_are_counted_apart(
    tmp_path, in_fp16, capsys
):
    in_fp16(join({}), tmp_path / "runs", max_steps=30)

    steps = metrics(tmp_path / "runs" / "night", "step")
    searched = [step["scaler_skipped"] for step in steps]
    assert searched[:5] == [1] * 5  # the scale halves each time, until it fits
    assert sum(searched) < 20
    assert not any(step["skipped"] for step in steps)
    assert metrics(tmp_path / "runs" / "night", "skip") == []
    scaled = [line for line in capsys.readouterr().out.splitlines() if "  1 skipped" in line]
    assert len([line for line in scaled if "scaler" in line]) == len(scaled) == sum(searched)
    assert steps[-1]["loss"] < steps[0]["loss"]


@pytest.mark.rotated
def test_a_rank_without_rows_looks_for_the_scale_with_the_others(tmp_path, in_fp16):
    def act(world):
        in_fp16(world, tmp_path / world.node, global_batch=1, max_steps=20)

    on_ranks(2, act)
    (plan,) = metrics(tmp_path / "node0" / "night", "plan")
    assert plan["rows"] == [1, 0]
    one, other = (
        torch.load(next((tmp_path / node).rglob("step-00000020")) / "state.pt")
        for node in ("node0", "node1")
    )
    assert one["scaler"] == other["scaler"]
    assert one["scaler"]["scale"] < 2.0**30
