"""Whether a model fits: a rank's needs by part, its memory, and the messages."""

from __future__ import annotations

import json
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from support.facts import assert_names, refuses
from transformers import AutoConfig, AutoModelForCausalLM

from hearth.config import Settings, load_preset, preset_names
from hearth.config.presets import ModelSource, known_shape
from hearth.config.shape import FAMILIES, shape_of
from hearth.fit.by_hand import room_here
from hearth.fit.capacity import GIB, Room, least, rooms_of_ranks
from hearth.fit.estimate import Case, adapter_parameters, case_of, estimate
from hearth.fit.home import Candidate, rooms_by_node
from hearth.fit.misfits import holding, imprecise, lacking, misfits, needs
from hearth.model import load
from hearth.model.unsloth_environment import LOGITS

LLAMA_7B = load_preset("llama2-7b").shape
PLAIN = Case(
    Settings(
        model="any",
        global_batch=64,
        micro_batch=1,
        precision="bf16",
        backend="transformers",
        optimizer="adamw",
    ).at_most(),
    gpu=True,
)


def changed(case: Case, **changes: object) -> Case:
    """Return `case` with other settings or hardware."""
    hardware = {name: changes.pop(name) for name in ("gpu", "ranks") if name in changes}
    return replace(case, settings=case.settings.model_copy(update=changes), **hardware)


known = [shape for name in preset_names() if (shape := load_preset(name).shape)]
shapes = st.sampled_from([replace(each, parameters=each.decoder_parameters) for each in known])
cases = st.builds(
    changed,
    st.just(PLAIN),
    micro_batch=st.integers(1, 16),
    sequence_length=st.integers(8, 4096),
    gpu=st.booleans(),
    precision=st.sampled_from(["bf16", "fp16", "fp32", "fp64"]),
    backend=st.sampled_from(["unsloth", "transformers"]),
    optimizer=st.sampled_from(["adamw", "adamw_8bit"]),
    load_in_4bit=st.booleans(),
    load_in_8bit=st.booleans(),
    dora=st.booleans(),
    gradient_checkpointing=st.booleans(),
    compress=st.sampled_from(["none", "bf16"]),
    lora=st.booleans(),
    lora_rank=st.integers(1, 128),
    lora_targets=st.sampled_from(
        ["all-linear", ("o_proj", "c_proj"), ("v_proj", "down_proj", "c_fc")]
    ),
    sync_every=st.sampled_from([1, 16]),
    ranks=st.sampled_from([1, 2]),
)


@pytest.mark.parametrize("name", preset_names())
def test_the_sizes_of_a_preset_add_up_to_its_published_number_of_parameters(name):
    shape = load_preset(name).shape
    # The rest of gemma3-4b is its vision tower and what joins it to the decoder.
    beside = {"gemma3-4b": 419_816_304}.get(name, 0)
    assert shape is None or shape.decoder_parameters + beside == shape.parameters


def test_an_adapter_has_the_parameters_that_peft_makes():
    """Known figures: rank 16 on queries and values of Llama 2 7B, and on all its linear layers."""
    assert adapter_parameters(LLAMA_7B, 16, ("q_proj", "v_proj")) == 8_388_608
    assert adapter_parameters(LLAMA_7B, 16, "all-linear") == 39_976_960
    outputs = 32 * (5 * 4096 + 2 * 11008)  # a magnitude for each, with DoRA
    assert adapter_parameters(LLAMA_7B, 16, "all-linear", dora=True) == 39_976_960 + outputs


@given(shapes, cases, st.integers(1, 8))
def test_more_of_anything_never_needs_less(shape, case, more):
    need = estimate(shape, case).total
    for name in ("micro_batch", "sequence_length", "lora_rank"):
        larger = changed(case, **{name: getattr(case.settings, name) + more})
        assert estimate(shape, larger).total > need or (
            name == "lora_rank" and not case.settings.lora
        )
        assert estimate(shape, larger).total >= need
    deeper = replace(shape, num_hidden_layers=shape.num_hidden_layers + more)
    deeper = replace(deeper, parameters=deeper.decoder_parameters)
    assert estimate(deeper, case).total > need


@given(shapes, cases)
def test_what_saves_memory_never_costs_any(shape, case):
    """On a GPU; a CPU's heap spoils small gains."""
    case = changed(case, gpu=True, lora=True, gradient_checkpointing=False)
    case = changed(case, load_in_4bit=False, load_in_8bit=False)
    need = estimate(shape, case)
    less = estimate(shape, changed(case, gradient_checkpointing=True))
    assert less.activations < need.activations
    if case.settings.precision == "fp32":
        medium, small = (changed(case, **{f"load_in_{bits}bit": True}) for bits in (8, 4))
        assert estimate(shape, small).weights < estimate(shape, medium).weights < need.weights
    assert estimate(shape, changed(case, optimizer="adamw_8bit")).optimizer < (
        need.optimizer if case.settings.optimizer == "adamw" else need.optimizer + 1
    )
    assert estimate(shape, changed(case, backend="unsloth")).logits <= need.logits


def test_weights_in_4_bits_in_8_and_in_16():
    """7 billion parameters: 12.6 GiB in 16 bits; linear layers in 4 bits as bitsandbytes packs.

    In 8 bits it is 6 GiB, the rest of the model, and scales; in both one matrix multiplied out.
    """
    large = estimate(LLAMA_7B, PLAIN)
    assert large.weights == 2 * LLAMA_7B.parameters
    assert large.gradients == large.adapter  # the flat buffer that is exchanged
    small = changed(PLAIN, load_in_4bit=True, backend="unsloth")
    assert estimate(LLAMA_7B, small).weights / GIB == pytest.approx(3.69, abs=0.01)
    medium = changed(PLAIN, load_in_8bit=True, backend="unsloth")
    assert estimate(LLAMA_7B, medium).weights / GIB == pytest.approx(6.68, abs=0.05)


def test_a_model_that_learns_itself_takes_16_bytes_a_weight():
    need = estimate(LLAMA_7B, changed(PLAIN, lora=False))
    of_weights = need.weights + need.adapter + need.gradients + need.optimizer
    assert of_weights == 16 * LLAMA_7B.parameters


def test_auto_comes_to_what_the_run_will_choose():
    choices = attrgetter("precision", "backend", "optimizer")
    settings = Settings(model="any", micro_batch=8, global_batch=4)
    mixed = case_of(settings, gpu=False, gpus=True, all_gpus=False, ranks=2)
    assert choices(mixed.settings) == ("bf16", "transformers", "adamw")
    gpu = case_of(settings, gpu=True, gpus=True, all_gpus=True, ranks=2)
    assert choices(gpu.settings) == ("bf16", "unsloth", "adamw_8bit")
    assert case_of(settings, False, False, False, 2).settings.precision == "fp32"
    assert gpu.tokens == 4 * 1024
    assert case_of(Settings(model="any"), True, True, True, 2).tokens == 1024
    parts = case_of(settings.model_copy(update={"parallel": "fsdp"}), True, True, True, 2)
    assert (gpu.sharers, parts.sharers, parts.settings.backend) == (1, 2, "transformers")


GPT2 = load_preset("gpt2-124m")
EXPERTS = {
    "mixtral": {"num_local_experts": 4},
    "qwen3_moe": {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48},
    "glm4_moe": {
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "n_shared_experts": 2,
        "first_k_dense_replace": 1,
        "attention_bias": True,
        "use_qk_norm": True,
    },
}


def saved_bytes(model: torch.nn.Module, tokens: int, precision: str) -> int:
    """Return the bytes that a forward pass saves for the backward pass, beside the weights."""
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor):
        kept.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    dtype = {"enabled": precision == "bf16", "dtype": torch.bfloat16}
    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with hooks, torch.autocast("cpu", **dtype):
        model(torch.zeros(1, tokens, dtype=torch.long), use_cache=False)
    return sum(
        tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in weights
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_gpt2_keeps_for_its_backward_pass_is_estimated_by_what_its_modules_keep(precision):
    tokens = 64
    sizes = {"n_embd": 128, "n_layer": 4, "n_head": 4, "n_positions": tokens, "vocab_size": 64}
    config = AutoConfig.for_model("gpt2", **sizes, bos_token_id=0, eos_token_id=0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    found = saved_bytes(model, tokens, precision)
    same = {"sequence_length": tokens, "precision": precision, "backend": "transformers"}
    settings = Settings(model="gpt2-124m", **GPT2.settings | same, micro_batch=1).at_most()
    shape = shape_of(config.to_dict())
    assert estimate(shape, Case(settings, gpu=True)).activations == pytest.approx(found, rel=0.15)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", EXPERTS)
def test_what_experts_keep_for_the_backward_pass_is_estimated_by_what_they_keep(kind, precision):
    tokens = 64
    sizes = {"hidden_size": 128, "intermediate_size": 96, "num_hidden_layers": 4, "head_dim": 32}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64}
    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = AutoConfig.for_model(kind, **sizes | EXPERTS[kind] | ends)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    targets = ["q_proj", "v_proj"]
    with_adapter = get_peft_model(
        model.to(torch.bfloat16 if precision == "bf16" else torch.float32),
        LoraConfig(r=8, target_modules=targets, task_type="CAUSAL_LM"),
    )
    found = saved_bytes(with_adapter, tokens, precision)
    same = {"sequence_length": tokens, "precision": precision, "backend": "transformers"}
    lora = {"lora_rank": 8, "lora_targets": targets, "gradient_checkpointing": False}
    settings = Settings(model="tiny", **same, **lora, micro_batch=1).at_most()
    shape = shape_of(config.to_dict())
    needed = estimate(shape, Case(settings, gpu=True)).activations
    assert found <= needed <= 1.25 * found


def one_each(rooms):
    """Return a rank of each node."""
    return [Candidate(*each) for each in rooms.items()]


def test_gpt2_from_scratch_fits_a_card_of_6_gb_and_not_one_of_4():
    settings = Settings(model="gpt2-124m", **GPT2.settings)
    cards = {"oldbox": Room(6 * GIB, "GTX 1060"), "attic": Room(4 * GIB, "GTX 1050 Ti")}
    found = misfits("gpt2-124m", settings, GPT2.shape, one_each(cards))
    assert list(found) == ["attic"]
    assert_names(found["attic"], "-e nodes=oldbox", "gradient_checkpointing=on")
    assert "lora=" not in found["attic"] and "load_in_4bit" not in found["attic"]


@pytest.mark.parametrize(("targets", "features"), [(("c_attn",), 768 + 2304), (("c_proj",), 5376)])
def test_an_adapter_for_gpt2_is_counted_by_gpt2s_own_names(targets, features):
    assert adapter_parameters(GPT2.shape, 8, targets) == 12 * 8 * features


@pytest.mark.parametrize(
    ("choices", "wanted"),
    [
        ({}, "unsloth"),
        ({"lora": False}, "transformers"),
        ({"parallel": "fsdp"}, "transformers"),
        ({"trust_remote_code": True}, "transformers"),
        ({"dropout": 0}, "transformers"),
        ({"compile": True}, "transformers"),
        ({"backend": "transformers"}, "transformers"),
    ],
)
def test_the_backend_of_a_card_is_the_one_that_the_run_takes(choices, wanted, monkeypatch):
    monkeypatch.setattr(load.importlib.util, "find_spec", lambda name: name)  # Unsloth is there
    settings = Settings(model="any", **choices)
    case = case_of(settings, gpu=True, gpus=True, all_gpus=True, ranks=2)
    assert case.settings.backend == wanted
    assert load.backend_here(settings, torch.device("cuda")) == wanted


def test_unsloth_makes_long_rows_logits_within_its_budget():
    long = changed(PLAIN, backend="unsloth", sequence_length=32_768)
    assert estimate(LLAMA_7B, long).logits == LOGITS


def test_a_whole_model_that_learns_on_a_card_makes_its_logits_whole():
    settings = Settings(model="any", lora=False, sequence_length=2048)
    case = case_of(settings, gpu=True, gpus=True, all_gpus=True, ranks=1)
    assert estimate(LLAMA_7B, case).logits == 3 * 2048 * 32_000 * 4


@given(shapes, cases)
def test_ranks_that_learn_by_themselves_need_four_more_of_what_learns(shape, case):
    """Both moments that are averaged, where the round began, and the outer momentum."""
    without, rounds = (
        estimate(shape, changed(case, ranks=count, sync_every=16)) for count in (1, 2)
    )
    assert (without.rounds, rounds.rounds) == (0, 4 * rounds.gradients)
    assert rounds.exchange == 3 * without.exchange
    assert rounds.total - without.total == rounds.rounds + 2 * without.exchange


def test_rounds_are_taken_by_several_ranks_and_never_with_an_optimizer_of_8_bits():
    seldom = Settings(model="any", sync_every=16)
    several = case_of(seldom, gpu=True, gpus=True, all_gpus=True, ranks=2)
    assert (several.rounds, several.settings.optimizer) == (True, "adamw")
    alone = case_of(seldom, gpu=True, gpus=True, all_gpus=True, ranks=1)
    assert (alone.rounds, alone.settings.optimizer) == (False, "adamw")
    assert not case_of(Settings(model="any"), True, True, True, 2).rounds


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_that_share_the_weights_hold_a_part_two_layers_and_the_head(ranks):
    whole = estimate(LLAMA_7B, PLAIN)
    part = estimate(LLAMA_7B, changed(PLAIN, parallel="fsdp", ranks=ranks))
    layer, head = LLAMA_7B.linear_parameters / 32, 32_000 * 4096
    assert part.weights == pytest.approx(whole.weights / ranks + 2 * (2 * layer + head), abs=1)
    assert part.activations == whole.activations
    assert part.optimizer == whole.optimizer


def test_on_a_cpu_the_layers_that_were_gathered_leave_holes_in_the_heap():
    card = changed(PLAIN, precision="fp32", parallel="fsdp", ranks=2)
    small, large = load_preset("smollm2-135m").shape, LLAMA_7B
    on_card, on_cpu = (estimate(small, changed(card, gpu=gpu)) for gpu in (True, False))
    lost = on_cpu.weights - on_card.weights
    assert lost == pytest.approx(0.65 * 4 * small.linear_parameters, abs=1)
    assert on_cpu.imports > on_card.imports == 0
    # Blocks of more than 32 MiB are pages of their own.
    assert estimate(large, changed(card, gpu=False)).weights == estimate(large, card).weights


def facts(*gpus: int | None, free: int = 16_384, cuda: bool = True) -> dict:
    named = [
        {"name": f"RTX {n}", "memory_mib": mib, "capability": "8.6"} for n, mib in enumerate(gpus)
    ]
    return {"cuda": cuda, "gpus": named, "free_mib": free}


def test_a_rank_has_a_card_or_a_part_of_the_free_memory():
    assert rooms_of_ranks(facts(8192), 0) == [Room(8 * GIB, "RTX 0")]
    assert rooms_of_ranks(facts(8192), 2) == 2 * [Room(4 * GIB, "RTX 0", ranks=2)]
    unified = Room(16 * GIB, "RTX 0", unified=True)
    assert rooms_of_ranks(facts(None, free=20_480), 0) == [unified]
    assert rooms_of_ranks(facts(8192, cuda=False), 0) == [Room(16 * GIB)]
    assert rooms_of_ranks(facts(), 0, nodes_here=2) == [Room(8 * GIB, ranks=2)]
    limited = Room(5 * GIB // 2, limited=True)
    assert rooms_of_ranks(facts(), 4, memory_limit=2.5) == 4 * [limited]


def test_the_room_on_a_card_is_what_driver_and_desktop_leave():
    used = facts(8188)
    used["gpus"][0]["room_mib"] = 6900
    (room,) = rooms_of_ranks(used, 1)
    assert room.size == 6900 << 20
    assert_names(room.description, "6.7 GiB", "1.3")


@pytest.mark.parametrize("preset", ["llama3.1-8b", "qwen3-8b"])
@pytest.mark.parametrize("free", [6656, 7475])
def test_a_laptop_whose_desktop_holds_memory_is_refused_before_a_model_is_downloaded(preset, free):
    """Both need less than the nominal 8188 MiB of the card, and fail with less of it."""
    shape = load_preset(preset).shape
    settings = Settings.model_validate({"model": preset, **load_preset(preset).settings})
    found = facts(8188)
    assert not misfits(preset, settings, shape, [Candidate("laptop", rooms_of_ranks(found, 1)[0])])
    found["gpus"][0]["room_mib"] = free
    ranks = [Candidate("laptop", rooms_of_ranks(found, 1)[0])]
    assert list(misfits(preset, settings, shape, ranks)) == ["laptop"]


def test_programs_that_hold_what_the_model_lacks_are_named_to_be_ended():
    preset = load_preset("qwen3-8b")
    settings = Settings.model_validate({"model": "qwen3-8b", **preset.settings})
    found = facts(8188)
    found["gpus"][0] |= {"room_mib": 6400, "programs": [["firefox", 300], ["game.exe", 1400]]}
    ranks = [Candidate("laptop", rooms_of_ranks(found, 1)[0])]
    said = misfits("qwen3-8b", settings, preset.shape, ranks)["laptop"]
    assert_names(said, "ending", "game.exe 1.4 GiB", "firefox 0.3 GiB")
    found["gpus"][0]["programs"] = [["firefox", 300]]  # which would not be enough
    ranks = [Candidate("laptop", rooms_of_ranks(found, 1)[0])]
    assert "ending" not in misfits("qwen3-8b", settings, preset.shape, ranks)["laptop"]


def test_unlike_cards_of_a_computer_have_their_own_memory():
    large, small = Room(16 * GIB, "RTX 0"), Room(8 * GIB, "RTX 1")
    assert rooms_of_ranks(facts(16_384, 8192), 0) == [large, small]
    halved = Room(8 * GIB, "RTX 0", ranks=2)
    assert rooms_of_ranks(facts(16_384, 8192), 3) == [halved, small, halved]
    # CUDA_VISIBLE_DEVICES may hide the first one.
    assert rooms_of_ranks(facts(16_384, 8192), 1, nodes_here=2) == [
        replace(small, size=4 * GIB, ranks=2)
    ]
    old = facts(8192, 16_384)
    old["gpus"][1]["capability"] = "7.5"
    rooms = rooms_of_ranks(old, 0)
    assert [room.bf16 for room in rooms] == [True, False]
    # A rank of the whole model goes by the smallest, and all of them compute alike.
    assert least(rooms) == Room(8 * GIB, "RTX 0", bf16=False)
    assert rooms_by_node([Candidate("box", room) for room in rooms]) == {"box": least(rooms)}


def test_a_card_that_shares_the_computers_memory_also_holds_what_python_needs():
    """As on a DGX Spark: nvidia-smi knows no memory of the card, torch reports the computer's."""
    own, shared = Room(GIB, "RTX 0"), Room(GIB, "NVIDIA GB10", unified=True)
    needed = needs(PLAIN.settings, LLAMA_7B, {"tower": own, "spark": shared})
    assert needed["spark"].imports > needed["tower"].imports == 0
    assert_names(shared.description, "NVIDIA GB10", "1.0 GiB", "CPU")


def test_by_hand_an_integrated_card_has_what_is_free_and_not_all_that_there_is(monkeypatch):
    card = SimpleNamespace(
        name="NVIDIA GB10", total_memory=120 * GIB, is_integrated=1, major=12, minor=1
    )
    monkeypatch.setattr("hearth.fit.by_hand.has_nvidia_gpu", lambda: True)
    monkeypatch.setattr("hearth.fit.by_hand.free_gib", lambda: 90.0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: card)
    monkeypatch.setattr("hearth.fit.by_hand.Cards.open", lambda: None)
    assert room_here(None, {}) == Room(72 * GIB, "NVIDIA GB10", unified=True)
    card.is_integrated = 0
    assert room_here(None, {}) == Room(120 * GIB, "NVIDIA GB10")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    other = SimpleNamespace(**{**vars(card), "name": "RTX 3060", "total_memory": 12 * GIB})
    monkeypatch.setattr("torch.cuda.get_device_properties", [card, other].__getitem__)
    second = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    assert room_here(None, second) == Room(12 * GIB, "RTX 3060")
    card.major = 7
    assert not room_here(None, {}).bf16


HOME = {"tower": Room(16 * GIB, "RTX 5070 Ti"), "laptop": Room(8 * GIB, "RTX 4070")}


def test_what_does_not_fit_is_named_with_what_would_make_it_fit():
    settings = Settings(model="llama2-7b", gradient_checkpointing=True)
    found = misfits("llama2-7b", settings, LLAMA_7B, one_each(HOME))
    assert list(found) == ["laptop"]
    facts = ("llama2-7b", "RTX 4070 has 8.0 GiB", "weights 12.6", "not verified")
    assert_names(found["laptop"], *facts, "load_in_4bit=on", "-e nodes=tower", "fit=warn")
    assert not misfits(
        "m", settings.model_copy(update={"load_in_4bit": True}), LLAMA_7B, one_each(HOME)
    )


FSDP = {"parallel": "fsdp"}
ROUNDED = {"compress": "bf16"}
LEAN = {"gradient_checkpointing": True}
EIGHT = {"micro_batch": 8, "load_in_4bit": True, "backend": "transformers"}


@pytest.mark.parametrize(
    ("settings", "cards", "advised", "not_advised"),
    [
        (LEAN | {"load_in_4bit": True}, [12, 3], "fit=warn", "parallel=fsdp"),  # a half of 12.6 GiB
        (LEAN, [10, 10, 10], "parallel=pipeline", "parallel=fsdp"),
        (LEAN, [10, 10, 10], "parallel=pipeline", "models.yml"),
        (LEAN | {"fit": "warn"}, [6, 6], "load_in_4bit=on", "parallel=pipeline"),
        (
            LEAN | ROUNDED | {"load_in_4bit": True},
            [5] * 8,
            "=fsdp and load_in_4bit=off",
            "pipeline",
        ),
        (
            LEAN | {"load_in_8bit": True},
            [8],
            "load_in_4bit=on and load_in_8bit=off",
            "-e nodes",
        ),
        (LEAN | FSDP, [24, 4], "fit=warn", "-e nodes="),
        (LEAN | FSDP, [24, 4], "fit=warn", "load_in_4bit"),
        (EIGHT, [15], "gradient_checkpointing=on", "load_in_4bit=on"),
        (EIGHT, [15], "gradient_checkpointing=on", "-e nodes"),
        (EIGHT, [15], "micro_batch=1", "micro_batch=1 and"),
        ({}, [1], "hearth models", "it would fit"),
    ],
)
def test_what_helps_is_advised_and_no_more(settings, cards, advised, not_advised):
    rooms = {f"node{number}": Room(gib * GIB, "RTX") for number, gib in enumerate(cards)}
    *_, said = misfits("m", Settings(model="m", **settings), LLAMA_7B, one_each(rooms)).values()
    assert advised in said
    assert not_advised not in said


def test_the_cards_of_one_node_are_several_ranks_for_the_advice():
    ranks = 3 * [Candidate("box", Room(8 * GIB, "RTX 3070"))]
    settings = Settings(model="m", parallel="ddp", **LEAN)
    assert "parallel=pipeline" in misfits("m", settings, LLAMA_7B, ranks)["box"]
    assert "parallel=" not in misfits("m", settings, LLAMA_7B, ranks[:1])["box"]


OLD, MODERN = Room(24 * GIB, "RTX TITAN", bf16=False), Room(24 * GIB, "RTX 3090")


@pytest.mark.parametrize(
    ("others", "small", "holds"),
    [
        ({}, [], ["desk"]),
        ({"shed": MODERN}, [], ["desk", "shed"]),
        ({"shed": Room(8 * GIB)}, ["desk", "shed"], ["desk"]),  # in fp32 with the processor
        ({"shed": Room(64 * GIB)}, ["desk"], ["desk"]),
        ({"shed": Room(64 * GIB), "attic": MODERN}, ["desk", "attic"], ["desk", "attic"]),
    ],
)
def test_the_whole_model_is_judged_in_the_precision_that_those_who_train_together_take(
    others, small, holds
):
    settings = Settings(model="m", **LEAN)
    rooms = {"desk": OLD} | others
    assert lacking(settings, LLAMA_7B, rooms) == small
    assert holding(settings, LLAMA_7B, one_each(rooms)) == holds
    for said in misfits("m", settings, LLAMA_7B, one_each(rooms)).values():
        assert f"-e nodes={','.join(holds)}" in said


def test_a_processor_that_could_hold_a_model_in_bf16_only_beside_a_gpu_does_not_hold_it_alone():
    rooms = {"desk": Room(8 * GIB, "RTX 4070"), "shed": Room(20 * GIB)}
    settings = Settings(model="m", **LEAN)
    assert lacking(settings, LLAMA_7B, rooms) == ["desk"]
    assert holding(settings, LLAMA_7B, one_each(rooms)) == []


def test_weights_that_are_shared_out_fit_three_cards():
    settings = Settings(model="m", **LEAN, **FSDP)
    three = {name: Room(10 * GIB, "RTX 3080") for name in ("tower", "laptop", "oldbox")}
    assert not misfits("m", settings, LLAMA_7B, one_each(three))
    assert not misfits("m", settings, LLAMA_7B, 3 * [Candidate("here", three["tower"])])


def test_advice_goes_by_the_ranks_that_there_are_also_where_one_node_is_looked_at():
    settings = Settings(model="m", **FSDP, micro_batch=16)
    ranks = 3 * [Candidate("here", Room(10 * GIB, "RTX 3080"))]
    said = misfits("m", settings, LLAMA_7B, ranks)["here"]
    assert "gradient_checkpointing=on" in said or "micro_batch=1" in said
    assert "models.yml" not in said


SAVING = {"micro_batch", "gradient_checkpointing", "load_in_4bit", "sequence_length"}


@given(shapes, st.integers(1, 64))
def test_a_change_that_is_advised_does_make_it_fit(shape, gib):
    settings = Settings(model="m", micro_batch=4, sequence_length=2048)
    room = {"box": Room(gib * GIB)}
    for said in misfits("m", settings, shape, one_each(room)).values():
        ways = said.partition("it would fit with: ")[2].split("; ")
        for way in ways:
            changes = dict(word.split("=") for word in way.split(" and ") if "=" in word)
            if changes.keys() <= SAVING:
                changed = Settings.model_validate(settings.model_dump() | changes)
                assert not changes or not misfits("m", changed, shape, one_each(room))


CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 256,
    "tie_word_embeddings": True,
}


# gemma3 is the name of a model that sees, too; gemma3_text is its decoder.
@pytest.mark.parametrize("kind", sorted(FAMILIES.keys() - {"gemma3"}))
@pytest.mark.parametrize("tied", [False, True])
def test_the_parameters_of_each_known_kind_are_those_of_the_model(kind, tied):
    small = {name: size for name, size in CONFIG.items() if name != "model_type"}
    more = {"num_key_value_heads": 2, "head_dim": 8, "tie_word_embeddings": tied}
    more |= EXPERTS.get(kind, {})
    config = AutoConfig.for_model(kind, **small | more, pad_token_id=0)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    shape = shape_of(config.to_dict())
    assert shape.parameters == sum(weights.numel() for weights in model.parameters())


def test_a_config_tells_the_shape_of_its_model():
    shape = shape_of(CONFIG)
    assert (shape.head_dim, shape.num_key_value_heads) == (16, 4)
    assert shape.parameters == 256 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64


@pytest.mark.parametrize(("kind", "place"), [("folder", "mine"), ("hub", "models/tiny")])
def test_the_shape_of_a_model_is_read_where_it_lies(kind, place, tmp_path):
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "config.json").write_text(json.dumps(CONFIG))
    source = ModelSource("tiny", str(tmp_path / "mine"), kind)
    assert known_shape("owner/tiny", source, tmp_path / "models") == shape_of(CONFIG)


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "mixture"},
        {"hidden_size": None},
        {"vision_config": {}},
        {"quantization_config": {}},
        {"num_hidden_layers": "many"},
        {"model_type": "gpt2", "n_embd": None},
        {"model_type": "qwen3_moe", **EXPERTS["qwen3_moe"], "decoder_sparse_step": 2},
        {"model_type": "qwen3_moe", **EXPERTS["qwen3_moe"], "mlp_only_layers": [1]},
    ],
)
def test_of_another_kind_of_model_nothing_is_guessed(changes):
    assert shape_of(CONFIG | changes) is None


def test_a_preset_of_an_unknown_kind_is_refused():
    with refuses(ValueError, "model_type gpt5"):
        replace(LLAMA_7B, model_type="gpt5")


# Unsloth's "max. context length" of Llama 3.1 8B and Llama 3.3 70B, read on 2026-11-29 at
# https://unsloth.ai/docs/basics/unsloth-benchmarks: QLoRA on all linear layers, rank 32, one row,
# on a card of so many GB. The second list is their "Hugging Face + FA2".
PUBLISHED = [
    *[("llama3.1-8b", "unsloth", gb, tokens) for gb, tokens in (
        (8, 2_972), (12, 21_848), (16, 40_724), (24, 78_475), (40, 153_977), (48, 191_728),
        (80, 342_733),
    )],
    *[("llama3.3-70b", "unsloth", gb, tokens) for gb, tokens in ((48, 12_106), (80, 89_389))],
    *[("llama3.1-8b", "transformers", gb, tokens) for gb, tokens in (
        (12, 932), (16, 2_551), (24, 5_789), (40, 12_264), (48, 15_502), (80, 28_454),
    )],
    ("llama3.3-70b", "transformers", 80, 6_916),
]  # fmt: skip


def published_row(model: str, backend: str, gb: int, tokens: int) -> tuple[float, str]:
    """Return the estimated GiB of a published run, and its row in tests/bench/README.md."""
    shape = load_preset("llama3.1-8b").shape
    if model == "llama3.3-70b":
        shape = replace(shape, hidden_size=8192, intermediate_size=28_672, num_hidden_layers=80)
        shape = replace(shape, num_attention_heads=64)
        shape = replace(shape, parameters=shape.decoder_parameters)
    changes = {"load_in_4bit": True, "gradient_checkpointing": True, "lora_rank": 32}
    changes |= {"sequence_length": tokens, "backend": backend, "optimizer": "adamw_8bit"}
    gib = estimate(shape, changed(PLAIN, lora_targets="all-linear", **changes)).total / GIB
    name = "Llama 3.1 8B" if model == "llama3.1-8b" else "Llama 3.3 70B"
    return gib, f"| {name} | {backend} | {tokens:,} | {gb} | {gib:.1f} | {gib / gb - 1:+.0%} |"


@pytest.mark.parametrize(("model", "backend", "gb", "tokens"), PUBLISHED)
def test_published_context_lengths_are_estimated_to_fill_their_cards(model, backend, gb, tokens):
    gib, row = published_row(model, backend, gb, tokens)
    assert gib == pytest.approx(gb, rel=0.03 if backend == "unsloth" else 0.08)
    assert row in (Path(__file__).parents[3] / "tests/bench/README.md").read_text()


def test_unsloth_keeps_the_inputs_of_layers_on_the_card_only_where_that_is_the_computers_memory():
    long = {"sequence_length": 8192, "gradient_checkpointing": True}
    card = changed(PLAIN, backend="unsloth", **long)
    shared = estimate(LLAMA_7B, replace(card, unified=True)).activations
    inputs = 32 * 4096 * 2
    assert shared - estimate(LLAMA_7B, card).activations > 0.9 * 8192 * inputs
    # Short ones are not worth the way.
    short = replace(card, settings=card.settings.model_copy(update={"sequence_length": 128}))
    assert estimate(LLAMA_7B, short).activations >= 128 * inputs


@pytest.mark.parametrize(
    ("precision", "unable"),
    [("fp16", {"box"}), ("bf16", {"old"}), ("fp32", set()), ("auto", set())],
)
def test_a_node_that_cannot_compute_in_the_precision_is_known_before_it_is_prepared(
    precision, unable
):
    rooms = {
        "new": Room(8 * GIB, gpu="RTX 4070"),
        "old": Room(8 * GIB, gpu="GTX 1080", bf16=False),
        "box": Room(8 * GIB),
    }
    ranks = [Candidate(node, room) for node, room in rooms.items()]
    assert (
        imprecise(Settings(model="any", dataset="words.jsonl", precision=precision), ranks).keys()
        == unable
    )
