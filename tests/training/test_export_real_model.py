"""SmolLM2, trained and exported: llama.cpp gives the greedy answer that Transformers gives."""

from __future__ import annotations

import json

import pytest
import torch
import xllamacpp
from peft import PeftModel
from support.ranks import succeeded, train_forked
from transformers import AutoModelForCausalLM, AutoTokenizer

from hearth.after.export import ExportRequest, export_run
from hearth.after.llama_cpp import llama_cpp
from hearth.config import load_preset
from hearth.config.layout import Layout
from hearth.model.fetch import fetch_model

QUESTION = "Which cable does the lamp in the attic need?"
ANSWER = "The lamp in the attic needs a green cable with seven knots."
LONGEST = 24
"""Tokens of an answer."""


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    """Return a workspace with SmolLM2, a run of it that has learned an answer, and its exports."""
    layout = Layout.from_environment({"HEARTH_WORKSPACE": str(tmp_path_factory.mktemp("home"))})
    fetch_model(load_preset("smollm2-135m").source("smollm2-135m"), layout.models)
    return layout


@pytest.fixture(scope="module")
def run(layout, tmp_path_factory):
    """Return the folder of a run that has learned an answer by heart."""
    cwd = tmp_path_factory.mktemp("night")
    data = cwd / "answers.jsonl"
    line = json.dumps({"prompt": QUESTION, "completion": ANSWER}) + "\n"
    data.write_text(line * 8)
    typed = [
        *("--model", "smollm2-135m", "--dataset", data, "--sequence-length", 80),
        *(
            "--learning-rate",
            0.003,
            "--max-steps",
            8,
            "--eval-held-out",
            "off",
            "--held-out",
            0,
            "--split",
            "equal",
        ),
        *("--global-batch", 2, "--micro-batch", 2, "--wandb", "off", "--run-name", "night"),
    ]
    succeeded(train_forked(cwd, 1, *typed, HEARTH_MODELS=str(layout.models)))
    return cwd / "runs" / "night"


@pytest.fixture(scope="module")
def prompt(layout):
    tokenizer = AutoTokenizer.from_pretrained(layout.models / "smollm2-135m")
    question = [{"role": "user", "content": QUESTION}]
    return tokenizer.apply_chat_template(question, add_generation_prompt=True, tokenize=False)


def of_transformers(base, adapter, prompt):
    tokenizer = AutoTokenizer.from_pretrained(base)
    network = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
    adapted = PeftModel.from_pretrained(network, adapter).eval()
    output = adapted.generate(**ids, max_new_tokens=LONGEST, do_sample=False)
    answer = output[0, ids["input_ids"].shape[1] :]
    return tokenizer.decode(answer, skip_special_tokens=True)


def of_llama_cpp(file, prompt, adapter=None):
    given = xllamacpp.CommonParams()
    given.model.path = str(file)
    given.n_ctx, given.n_parallel, given.cpuparams.n_threads, given.warmup = 256, 1, 2, False
    if adapter:
        given.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(adapter), 1.0)]
    wanted = {"prompt": prompt, "temperature": 0, "max_tokens": LONGEST}
    return xllamacpp.Server(given).handle_completions(wanted)["choices"][0]["text"]


@pytest.mark.rotated("export")
@pytest.mark.slow
def test_llama_cpp_gives_the_answer_of_transformers(layout, run, prompt, tmp_path):
    base = layout.models / "smollm2-135m"
    expected = of_transformers(base, run / "adapter", prompt)
    assert expected == ANSWER
    files = export_run(ExportRequest(run, "gguf", "f16"), layout, print)
    assert of_llama_cpp(files / "night-f16.gguf", prompt) == expected
    plain = tmp_path / "base.gguf"
    llama_cpp(print).convert_model(base, plain, "base", print)
    assert of_llama_cpp(plain, prompt) != expected
    assert of_llama_cpp(plain, prompt, files / "night-adapter.gguf") == expected


@pytest.mark.rotated("export")
@pytest.mark.slow
def test_four_bits_answer_as_well_and_are_a_third_of_the_size(layout, run, prompt, tmp_path):
    files = {
        precision: export_run(
            ExportRequest(run, "ollama", precision, folder=tmp_path / precision), layout, print
        )
        / f"night-{precision}.gguf"
        for precision in ("q8_0", "q4_k_m")
    }
    assert files["q4_k_m"].stat().st_size < 0.8 * files["q8_0"].stat().st_size
    for file in files.values():
        assert of_llama_cpp(file, prompt) == ANSWER
