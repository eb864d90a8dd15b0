"""A run's results work without Hearth: the adapter as it is, and merged into its model."""

from __future__ import annotations

from collections import namedtuple

import pytest
import torch
from peft import PeftConfig, PeftModel
from support.facts import refuses
from support.ranks import TRAINING, python, refused, succeeded, train_forked
from support.tiny_model import CHAT_TEMPLATE
from transformers import AutoModelForCausalLM, AutoTokenizer

from hearth.base.errors import ModelError
from hearth.model.merge import merge_run

IDS = torch.arange(40)[None]
WAYS = {
    "16 bits": (),
    "4 bits": ("--load-in-4bit",),
    "8 bits": ("--load-in-8bit",),
    "dora": ("--dora", "--rslora"),
    "whole": ("--no-lora",),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory, tiny_model, tiny_data):
    """Return a folder with one short run of each way."""
    cwd = tmp_path_factory.mktemp("home")
    common = [
        *("--model", tiny_model, "--dataset", tiny_data, "--sequence-length", 96),
        *("--learning-rate", 0.05, "--max-steps", 4, "--eval-every", 2, "--no-evaluate"),
        *("--split", "equal", "--micro-batch", 1, "--lora-rank", 4, "--wandb", "off"),
    ]
    for way, more in WAYS.items():
        succeeded(train_forked(cwd, 1, "--run-name", way.replace(" ", "-"), *common, *more))
    return cwd / "runs"


def logits(model):
    with torch.no_grad():
        return model.eval()(IDS).logits.float()


def merged(run, to, tmp_path, **more):
    merge_run(run, to, tmp_path / "models", lambda _: None, **more)
    return AutoModelForCausalLM.from_pretrained(to)


@pytest.mark.parametrize(
    ("run", "folder"),
    [
        *((run, "adapter") for run in ("16-bits", "4-bits", "8-bits", "dora")),
        ("16-bits", "best"),
    ],
)
def test_the_merged_model_answers_as_the_model_with_its_adapter(
    runs, tmp_path, tiny_model, run, folder
):
    base = AutoModelForCausalLM.from_pretrained(tiny_model)
    alone = logits(base)
    expected = logits(PeftModel.from_pretrained(base, runs / run / folder))
    found = logits(merged(runs / run, tmp_path / "merged", tmp_path, best=folder == "best"))
    assert (expected - alone).abs().max() > 0.01
    assert (found - expected).abs().max() < 1e-5
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "merged")
    assert tokenizer.chat_template == CHAT_TEMPLATE
    assert (
        tokenizer("lamp").input_ids == AutoTokenizer.from_pretrained(tiny_model)("lamp").input_ids
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["merged", "models"]


def test_the_adapter_says_how_it_is_scaled(runs):
    given = {run: PeftConfig.from_pretrained(runs / run / "adapter") for run in ("16-bits", "dora")}
    chosen = {run: (each.use_dora, each.use_rslora) for run, each in given.items()}
    assert chosen == {"16-bits": (False, False), "dora": (True, True)}


def test_a_head_that_was_adapted_is_no_longer_the_embeddings(tmp_path, tiny_model, tiny_data):
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    model.config.tie_word_embeddings = True
    model.tie_weights()
    model.save_pretrained(tmp_path / "tied")
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path / "tied")
    typed = [
        *("--model", tmp_path / "tied", "--dataset", tiny_data, "--sequence-length", 96),
        *("--learning-rate", 0.05, "--max-steps", 4, "--no-evaluate", "--split", "equal"),
        *("--micro-batch", 1, "--lora-targets", "q_proj,lm_head", "--wandb", "off"),
    ]
    succeeded(train_forked(tmp_path, 1, "--run-name", "tied", *typed))
    run = tmp_path / "runs" / "tied"
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "tied")
    assert base.get_output_embeddings().weight is base.get_input_embeddings().weight
    expected = logits(PeftModel.from_pretrained(base, run / "adapter"))
    assert (logits(merged(run, tmp_path / "merged", tmp_path)) - expected).abs().max() < 1e-4


def unmerged(run, to, tmp_path, *facts, **more):
    """Require that merging is refused, naming these facts, and leaves nothing behind."""
    before = {path.name for path in tmp_path.iterdir()}
    with refuses(ModelError, *facts):
        merge_run(run, to, tmp_path / "models", lambda _: None, **more)
    assert {path.name for path in tmp_path.iterdir()} - before <= {"models"}


def test_nothing_is_written_over(runs, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").touch()
    unmerged(runs / "16-bits", tmp_path / "mine", tmp_path, tmp_path / "mine", "exists")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["precious"]


def test_what_has_no_adapter_is_told_what_it_is(runs, tmp_path, tiny_model):
    to = tmp_path / "merged"
    unmerged(runs / "whole", to, tmp_path, runs / "whole", "whole model")
    unmerged(tiny_model.parent, to, tmp_path, tiny_model.parent, "no run")
    (tmp_path / "night").mkdir()
    (tmp_path / "night" / "run.yml").write_text((runs / "16-bits" / "run.yml").read_text())
    unmerged(tmp_path / "night", to, tmp_path, "resume=night")
    unmerged(tmp_path / "night", to, tmp_path, "eval_every", best=True)


def test_a_full_disk_is_told_beforehand(runs, tmp_path, monkeypatch):
    """A stand-in of a disk with a few bytes left."""
    disk = namedtuple("disk", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda _: disk(1 << 30, 1 << 30, 10))
    unmerged(runs / "16-bits", tmp_path / "merged", tmp_path, tmp_path, "10 B are free")


def test_a_disk_that_fails_on_the_way_leaves_nothing_half_written(runs, tmp_path, monkeypatch):
    """A stand-in of a disk that fills up after the weights are written."""

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    unmerged(runs / "16-bits", tmp_path / "merged", tmp_path, tmp_path / "merged", "No space left")


def test_the_command_says_what_it_does_and_ends_with_2_where_it_cannot(runs, tmp_path):
    (tmp_path / "runs").symlink_to(runs)
    command = (TRAINING / "merge.py", "runs/16-bits", "--to", tmp_path / "new" / "merged")
    done = succeeded(python(tmp_path, *command))
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1].endswith(f" {tmp_path}/new/merged")
    again = train_forked(tmp_path, 1, *command[1:], script=command[0])
    assert refused(again).count("hearth: error:") == 1
