"""A run's results work without Hearth: the adapter as it is, merged into its model, and as GGUF."""

from __future__ import annotations

import functools
import shutil
from collections import namedtuple
from dataclasses import replace

import pytest
import torch
from peft import PeftConfig, PeftModel
from support.facts import assert_names, refuses
from support.ranks import TRAINING, python, refused, succeeded, train_forked
from support.tiny_model import CHAT_TEMPLATE, make_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from hearth.after.export import ExportRequest, export_run
from hearth.after.llama_cpp import SET
from hearth.base.errors import ModelError
from hearth.base.extras import extra_folder
from hearth.base.files import alone
from hearth.config import read_run, write_run
from hearth.config.layout import Layout
from hearth.config.presets import ModelSource
from hearth.model.cache import local_folder

IDS = torch.arange(40)[None]
WAYS = {
    "16-bits": (),
    "4-bits": ("--load-in-4bit",),
    "8-bits": ("--load-in-8bit",),
    "dora": ("--dora", "--rslora"),
    "whole": (
        "--lora",
        "off",
    ),
}
OTHER_ADAPTERS = pytest.mark.rotated("exports of quantised and DoRA adapters")


@pytest.fixture(scope="module")
def trained(tmp_path_factory, tiny_model, tiny_data):
    """Return a function that trains a short run in one way, once, and returns its folder."""
    cwd = tmp_path_factory.mktemp("home")
    common = [
        *("--model", tiny_model, "--dataset", tiny_data, "--sequence-length", 96),
        *("--learning-rate", 0.05, "--max-steps", 4, "--eval-every", 2, "--eval-held-out", "off"),
        *("--split", "equal", "--micro-batch", 1, "--lora-rank", 4, "--wandb", "off"),
    ]

    @functools.cache
    def run(way):
        succeeded(train_forked(cwd, 1, "--run-name", way, *common, *WAYS[way]))
        return cwd / "runs" / way

    return run


def logits(model):
    with torch.no_grad():
        return model.eval()(IDS).logits.float()


def export(run, to, tmp_path, **more):
    layout = Layout.from_environment({"HEARTH_WORKSPACE": str(tmp_path)})
    export_run(ExportRequest(run, "merged", folder=to, **more), layout, lambda _: None)


def merged(run, to, tmp_path, **more):
    export(run, to, tmp_path, **more)
    return AutoModelForCausalLM.from_pretrained(to)


@pytest.mark.parametrize(
    ("run", "folder"),
    [
        ("16-bits", "adapter"),
        *(
            pytest.param(run, "adapter", marks=OTHER_ADAPTERS)
            for run in ("4-bits", "8-bits", "dora")
        ),
        ("16-bits", "best"),
    ],
)
def test_the_merged_model_answers_as_the_model_with_its_adapter(
    trained, tmp_path, tiny_model, run, folder
):
    base = AutoModelForCausalLM.from_pretrained(tiny_model)
    alone = logits(base)
    expected = logits(PeftModel.from_pretrained(base, trained(run) / folder))
    found = logits(merged(trained(run), tmp_path / "merged", tmp_path, best=folder == "best"))
    assert (expected - alone).abs().max() > 0.01
    assert (found - expected).abs().max() < 1e-5
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "merged")
    assert tokenizer.chat_template == CHAT_TEMPLATE
    assert (
        tokenizer("lamp").input_ids == AutoTokenizer.from_pretrained(tiny_model)("lamp").input_ids
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["merged", "models"]


@OTHER_ADAPTERS
def test_the_adapter_says_how_it_is_scaled(trained):
    given = {
        run: PeftConfig.from_pretrained(trained(run) / "adapter") for run in ("16-bits", "dora")
    }
    chosen = {run: (each.use_dora, each.use_rslora) for run, each in given.items()}
    assert chosen == {"16-bits": (False, False), "dora": (True, True)}


@pytest.mark.rotated
def test_a_head_that_was_adapted_is_no_longer_the_embeddings(tmp_path, tiny_model, tiny_data):
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    model.config.tie_word_embeddings = True
    model.tie_weights()
    model.save_pretrained(tmp_path / "tied")
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path / "tied")
    typed = [
        *("--model", tmp_path / "tied", "--dataset", tiny_data, "--sequence-length", 96),
        *("--learning-rate", 0.05, "--max-steps", 4, "--eval-held-out", "off", "--split", "equal"),
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
        export(run, to, tmp_path, **more)
    assert {path.name for path in tmp_path.iterdir()} - before <= {"models"}


def test_nothing_is_written_over(trained, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").touch()
    unmerged(trained("16-bits"), tmp_path / "mine", tmp_path, tmp_path / "mine", "exists")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["precious"]


def test_a_second_export_of_a_run_at_once_is_refused(trained, tmp_path):
    with alone(trained("16-bits")), refuses(ModelError, trained("16-bits"), "another export"):
        export(trained("16-bits"), tmp_path / "twice", tmp_path)
    assert not (tmp_path / "twice").exists()


def test_what_has_no_adapter_is_told_what_it_is(trained, tmp_path):
    to = tmp_path / "merged"
    unmerged(trained("whole"), to, tmp_path, trained("whole"), "whole model")
    (tmp_path / "night").mkdir()
    (tmp_path / "night" / "run.yml").write_text((trained("16-bits") / "run.yml").read_text())
    unmerged(tmp_path / "night", to, tmp_path, "resume=night")
    unmerged(tmp_path / "night", to, tmp_path, "eval_every", best=True)


def test_a_full_disk_is_told_beforehand(trained, tmp_path, monkeypatch):
    """A stand-in of a disk with a few bytes left."""
    disk = namedtuple("disk", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda _: disk(1 << 30, 1 << 30, 10))
    unmerged(trained("16-bits"), tmp_path / "merged", tmp_path, tmp_path, "10 B are free")


def test_a_disk_that_fails_on_the_way_leaves_nothing_half_written(trained, tmp_path, monkeypatch):
    """A stand-in of a disk that fills up after the weights are written."""

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    unmerged(
        trained("16-bits"), tmp_path / "merged", tmp_path, tmp_path / "merged", "No space left"
    )


@pytest.mark.rotated
def test_another_base_model_than_that_of_the_run_is_refused(tmp_path, tiny_model, tiny_data):
    base = shutil.copytree(tiny_model, tmp_path / "base")
    typed = [
        *("--model", base, "--dataset", tiny_data, "--sequence-length", 96, "--max-steps", 1),
        *("--eval-held-out", "off", "--split", "equal", "--micro-batch", 1, "--wandb", "off"),
    ]
    succeeded(train_forked(tmp_path, 1, "--run-name", "night", *typed))
    run, to = tmp_path / "runs" / "night", tmp_path / "merged"
    make_model(base, seed=1)
    unmerged(run, to, tmp_path, base, "night", "fingerprint")
    shutil.rmtree(base)
    unmerged(run, to, tmp_path, base)


def test_an_adapter_on_weights_in_4_bits_is_merged_into_those_of_the_preset(
    trained, tmp_path, monkeypatch
):
    run = shutil.copytree(trained("4-bits"), tmp_path / "runs" / "night")
    recorded = read_run(run / "run.yml")
    stored = ModelSource("stored", "owner/stored-bnb-4bit", "hub", in_4bit=True)
    settings = recorded.settings.model_copy(update={"model": "llama2-7b"})
    write_run(replace(recorded, source=stored, settings=settings), run / "run.yml")

    def fetched(source, *_, **__):
        """Stand in for the Hub."""
        assert source.id == "meta-llama/Llama-2-7b-hf"
        return local_folder(recorded.source, weights=True)

    monkeypatch.setattr("hearth.after.export.fetch_model", fetched)
    export(run, tmp_path / "merged", tmp_path)
    assert (tmp_path / "merged" / "model.safetensors").is_file()


def test_the_command_says_what_it_does_and_ends_with_2_where_it_cannot(trained, tmp_path):
    (tmp_path / "runs").symlink_to(trained("16-bits").parent)
    to = tmp_path / "new" / "merged"
    command = (TRAINING / "export.py", "16-bits", "--to", "merged", "--folder", to)
    done = succeeded(python(tmp_path, *command))
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1].endswith(f" {to}")
    again = train_forked(tmp_path, 1, *command[1:], script=command[0])
    assert refused(again).count("hearth: error:") == 1


CONVERTER = """
import sys
from pathlib import Path

to = Path(sys.argv[sys.argv.index("--outfile") + 1])
to.write_bytes(" ".join(["GGUF", *sys.argv]).encode())
{}
"""
FULL = [
    "OSError: [Errno 28] No space left on device",
    "OSError: 884736 requested and 482336 written",
    "llama_model_quantize: failed to quantize: basic_ios::clear: iostream error",
]
"""Words of Python, numpy and llama.cpp on a file system of 60 MB (2026-11-26)."""


@pytest.fixture
def layout(tmp_path, monkeypatch):
    """Return a layout with a stand-in for llama.cpp's converters, which write four bytes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    stand_in()
    return Layout.from_environment({"HEARTH_WORKSPACE": str(tmp_path)})


def stand_in(then=""):
    """Put the stand-in in the place of llama.cpp's tools; it does `then` before it ends."""
    folder = extra_folder(SET)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("convert_hf_to_gguf.py", "convert_lora_to_gguf.py"):
        (folder / name).write_text(CONVERTER.format(then))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_gguf_export_has_the_model_and_the_adapter_by_itself(trained, tmp_path, layout):
    said = []
    to = export_run(ExportRequest(trained("16-bits"), "gguf", "f16"), layout, said.append)
    assert to == trained("16-bits") / "export" / "gguf-f16"
    assert names(to) == ["16-bits-adapter.gguf", "16-bits-f16.gguf"]
    assert str(to) in said[-1]
    assert b"--model-name 16-bits" in (to / "16-bits-f16.gguf").read_bytes()


def test_a_folder_for_ollama_has_the_template_of_the_run(trained, tmp_path, layout):
    request = ExportRequest(trained("16-bits"), "ollama", "f16", folder=tmp_path / "ollama")
    to = export_run(request, layout, print)
    assert names(to) == ["16-bits-f16.gguf", "Modelfile"]
    lines = (to / "Modelfile").read_text().splitlines()
    assert "FROM ./16-bits-f16.gguf" in lines
    assert any(line.startswith('TEMPLATE """') and "<|im_start|>" in line for line in lines)
    assert 'PARAMETER stop """<|im_end|>"""' in lines


def test_a_run_under_way_is_exported_from_a_checkpoint_that_it_may_replace(
    trained, tmp_path, layout
):
    folder = tmp_path / "night"
    shutil.copytree(trained("16-bits"), folder, ignore=shutil.ignore_patterns("export"))
    shutil.rmtree(folder / "adapter")
    said = []

    def say(text):
        for checkpoint in (folder / "checkpoints").glob("step-*"):
            shutil.rmtree(checkpoint)
        said.append(text)

    to = export_run(ExportRequest(folder, "gguf", "f16"), layout, say)
    assert_names(said[0], "16-bits", "step 4")
    assert names(to) == ["16-bits-adapter.gguf", "16-bits-f16.gguf"]
    assert not list((folder / "checkpoints").iterdir())


@pytest.mark.parametrize("run", [pytest.param("dora", marks=OTHER_ADAPTERS), "whole"])
def test_what_has_no_adapter_for_gguf_has_a_model(trained, tmp_path, layout, run):
    to = export_run(
        ExportRequest(trained(run), "gguf", "f16", folder=tmp_path / "gguf"), layout, print
    )
    assert names(to) == [f"{run}-f16.gguf"]


@OTHER_ADAPTERS
def test_everything_wrong_with_a_request_comes_at_once(trained, tmp_path, layout):
    (tmp_path / "mine").mkdir()
    request = ExportRequest(trained("dora"), "gguf", "q4_k_n", folder=tmp_path / "mine")
    with refuses(ModelError, "q4_k_n", "q4_k_m", tmp_path / "mine") as caught:
        export_run(request, layout, print)
    assert len(caught.value.findings) == 2
    with refuses(ModelError, "--precision", "merged"):
        export_run(ExportRequest(trained("dora"), "merged", "f16"), layout, print)


def test_a_model_that_the_converter_does_not_know_is_not_merged_first(trained, tmp_path, layout):
    stand_in("sys.exit('ERROR:hf-to-gguf:Model HermitForCausalLM is not supported')")
    request = ExportRequest(trained("16-bits"), "gguf", "f16", folder=tmp_path / "gguf")
    said = []
    with refuses(ModelError, "HermitForCausalLM", "--to merged"):
        export_run(request, layout, said.append)
    assert not any("merging" in line for line in said)
    assert not request.target.exists()


@pytest.mark.parametrize(
    "words", [FULL[0], *(pytest.param(words, marks=pytest.mark.rotated) for words in FULL[1:])]
)
def test_a_disk_that_fills_up_during_the_conversion_leaves_nothing(
    trained, tmp_path, layout, words
):
    stand_in(f"if 'vocab' not in to.name: sys.exit({words!r})")
    to = tmp_path / "export" / "gguf"
    with refuses(ModelError, "No space left", "--folder"):
        export_run(ExportRequest(trained("16-bits"), "gguf", "f16", folder=to), layout, print)
    assert not to.parent.exists()


def test_an_adapter_that_the_converter_refuses_leaves_the_model(trained, tmp_path, layout):
    stand_in("if 'adapter' in to.name: sys.exit('ValueError: lm_head is present')")
    said = []
    request = ExportRequest(trained("16-bits"), "gguf", "f16", folder=tmp_path / "gguf")
    assert names(export_run(request, layout, said.append)) == ["16-bits-f16.gguf"]
    assert any("lm_head" in line for line in said)


def test_other_words_of_the_converter_are_passed_on(trained, tmp_path, layout):
    stand_in("sys.exit('ValueError: a moth in the relay')")
    to = tmp_path / "export" / "gguf"
    with refuses(ModelError, "a moth in the relay"):
        export_run(ExportRequest(trained("16-bits"), "gguf", "f16", folder=to), layout, print)
    assert not to.parent.exists()
