"""Losses and gradients of preferences against TRL's trainers, whose loops are not used."""

from __future__ import annotations

import json
import os
import warnings
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.preferences import records
from support.tiny_model import make_tokenizer
from transformers import AutoModelForCausalLM

from hearth.config import Settings
from hearth.data import rows as rows_module
from hearth.data.load import load_data
from hearth.model.transformers_backend import TransformersModel
from hearth.ranks.world import World
from hearth.trainer.compute import Compute
from hearth.trainer.preferences import choose_objective
from hearth.trainer.reference import Reference
from hearth.trainer.work import Work

pytestmark = [pytest.mark.long, pytest.mark.rotated("preferences as TRL computes them")]

COUNT = 6
BETA = 0.3
CASES = {
    "dpo": ({}, {"loss_type": ["sigmoid"]}, COUNT),
    "ipo": ({"dpo_loss": "ipo"}, {"loss_type": ["ipo"]}, COUNT),
    "dpo with sft": (
        {"sft_weight": 0.7},
        {"loss_type": ["sigmoid", "sft"], "loss_weights": [1, 0.7]},
        COUNT,
    ),
    # Of one pair TRL's "aot" is the conservative form, which it has nowhere else.
    "conservative dpo": (
        {"label_smoothing": 0.2},
        {"loss_type": ["aot"], "label_smoothing": 0.2},
        1,
    ),
    "orpo": ({}, {}, COUNT),
    "kto": ({}, {}, COUNT),
}


def tokenizer():
    """Return a tokenizer whose turns end with the last token that is learned.

    TRL learns what the template writes behind it, too.
    """
    made = make_tokenizer()
    made.chat_template = made.chat_template.replace("<|im_end|>\n", "<|im_end|>")
    return made


def models(folder):
    """Return a model in float64, and the same one changed a little."""
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    policy = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return base, policy


def _before(lengths, *_):
    """Return for each answer the one before it, as TRL takes them in the order of a batch."""
    return np.roll(np.arange(len(lengths)), 1)


def written(kind, count):
    """Return the records as Hearth and TRL read them alike: as messages."""
    found = []
    for number, each in enumerate(records(count)):
        prompt = [{"role": "user", "content": each["prompt"]}]
        good, bad = (
            [{"role": "assistant", "content": each[side][:6].ljust(6, "x")}]
            for side in ("chosen", "rejected")
        )
        if kind == "kto":  # of one length, as a mismatched answer is not cut then
            side = good if number % 2 else bad
            found.append({"prompt": prompt, "completion": side, "label": bool(number % 2)})
        else:
            found.append({"prompt": prompt, "chosen": good, "rejected": bad})
    return found


def of_hearth(tmp_path, folder, objective, settings, count):
    """Return Hearth's loss and gradients for one batch of all records."""
    file = tmp_path / "data.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in written(objective, count)))
    data = load_data(
        file, tokenizer(), sequence_length=256, packing=False, held_out=0, seed=1,
        cache=tmp_path / "tokens", objective=objective,
    )  # fmt: skip
    settings = Settings(model="any", objective=objective, beta=BETA, **settings)
    base, policy = models(folder)
    reference = Reference(data, objective == "kto") if settings.compares else None
    own, work = np.arange(len(data.train)), Work(World())

    def compute(network):
        model = TransformersModel(network, tokenizer(), torch.device("cpu"))
        return Compute(
            model, choose_objective(settings, reference), data.train, nullcontext,
            network.zero_grad, lambda loss: loss, work,
        )  # fmt: skip

    if reference:
        planner = SimpleNamespace(
            share=lambda rows: SimpleNamespace(slice_of=lambda _: slice(rows), micro_batch=(4,))
        )
        identity = {"of": objective}
        cache = tmp_path / "reference"
        reference.fill(compute(base), planner, World(), work, cache, identity)
    chosen, computing = choose_objective(settings, reference), compute(policy)
    counts = chosen.complete(
        chosen.counts(data.train, own),
        data.train,
        own,
        lambda: computing.log_probs(data.train, own, 4, print, mismatched=True),
        list,
    )
    loss = computing.gradients(own, 4, counts, int, print).loss
    return loss, {name: each.grad for name, each in policy.named_parameters()}


def of_trl(tmp_path, folder, kind, more, count):
    """Return TRL's loss and gradients for the same batch."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer
    from trl.experimental.orpo import ORPOConfig, ORPOTrainer

    from datasets import Dataset

    config, trainer = {
        "orpo": (ORPOConfig, ORPOTrainer), "kto": (KTOConfig, KTOTrainer),
    }.get(kind, (DPOConfig, DPOTrainer))  # fmt: skip
    base, policy = models(folder)
    size = {"train_sampling_strategy": "sequential"} if kind == "kto" else {}
    arguments = config(
        output_dir=str(tmp_path / "trl"), beta=BETA, per_device_train_batch_size=count,
        report_to="none", use_cpu=True, bf16=False, max_length=256, gradient_checkpointing=False,
        **size, **more,
    )  # fmt: skip
    other = {} if kind == "orpo" else {"ref_model": base}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = trainer(
            model=policy, args=arguments, processing_class=tokenizer(),
            train_dataset=Dataset.from_list(written(kind, count)), **other,
        )  # fmt: skip
        batch = next(iter(made.get_train_dataloader()))
        loss = made.compute_loss(made.model, batch)
        loss.backward()
    return loss.item(), {name: each.grad for name, each in policy.named_parameters()}


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_are_those_of_trl(tmp_path, tiny_model, monkeypatch, name):
    settings, more, count = CASES[name]
    kind = name if name in ("orpo", "kto") else "dpo"
    if kind == "kto":
        monkeypatch.setattr(rows_module, "partners", _before)
    loss, gradients = of_hearth(tmp_path, tiny_model, kind, settings, count)
    expected, others = of_trl(tmp_path, tiny_model, kind, more, count)
    assert loss == pytest.approx(expected, rel=1e-6)  # TRL computes the head in float32
    for parameter, gradient in gradients.items():
        torch.testing.assert_close(gradient, others[parameter], atol=1e-6, rtol=1e-5, msg=parameter)
