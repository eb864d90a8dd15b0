"""Tensors of safetensors files, read one by one, and those that stages need."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import save_file

from hearth.model.stored_tensor import stored_tensors
from hearth.model.weight_files import ModelPart, files_for, piece_of, pieces_without

TENSORS = {
    "whole": torch.arange(24, dtype=torch.float32).reshape(2, 3, 4),
    "half": torch.arange(5, dtype=torch.bfloat16),
    "scalar": torch.tensor(7),
    "none": torch.zeros(0, 3, dtype=torch.float16),
    "flags": torch.tensor([True, False]),
}


@pytest.fixture
def file(tmp_path):
    save_file(TENSORS, tmp_path / "model.safetensors", metadata={"format": "pt"})
    return tmp_path / "model.safetensors"


def test_tensors_are_read_as_they_were_written(file):
    stored = stored_tensors(file)
    assert stored.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        read = stored[name][...]
        assert read.dtype == tensor.dtype
        assert torch.equal(read, tensor)


def test_the_file_is_not_mapped_while_a_tensor_lives(file):
    read = stored_tensors(file)["whole"][...]
    assert str(file) not in Path("/proc/self/maps").read_text()
    assert read.numel() == 24


def test_a_file_that_is_not_whole_is_refused(file):
    stored = stored_tensors(file)
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises((SafetensorError, OSError)):
        stored_tensors(file)
    with pytest.raises(OSError, match="ends before"):
        [each[...] for each in stored.values()]


LAYERS = 6
NAMES = {
    "model.embed_tokens.weight": -1,
    "transformer.wte.weight": -1,
    "wpe.weight": -1,
    "model.layers.0.self_attn.q_proj.weight": 0,
    "h.4.attn.c_attn.bias": 4,
    "model.layers.5.mlp.experts.3.gate_proj.weight": 5,
    "model.norm.weight": LAYERS,
    "transformer.ln_f.weight": LAYERS,
    "lm_head.weight": LAYERS,
    f"model.layers.{LAYERS}.mlp.gate.weight": None,
    f"model.layers.{LAYERS + 1}.eh_proj.weight": None,
}
FILES = {
    name: f"{1 + max(0, piece_of(name, LAYERS)) // 2}.safetensors"
    for name in (
        "model.embed_tokens.weight",
        *(f"model.layers.{number}.{kind}" for number in range(LAYERS) for kind in "ab"),
        "lm_head.weight",
    )
}
cuts = st.lists(st.integers(1, LAYERS - 1), unique=True).map(lambda ends: [*sorted(ends), LAYERS])


@pytest.mark.parametrize(("name", "piece"), NAMES.items())
def test_a_name_says_where_a_tensor_belongs(name, piece):
    assert piece_of(name, LAYERS) == piece


@given(cuts, st.booleans())
def test_each_tensor_is_needed_once_but_for_embeddings_that_are_the_head_too(cut, tied):
    parts = [ModelPart(range(*ends), LAYERS, tied) for ends in zip([0, *cut], cut, strict=False)]
    needed = [name for part in parts for name in part.needed(FILES)]
    twice = "model.embed_tokens.weight" if tied and len(parts) > 1 else None
    assert sorted(needed) == sorted([*FILES, *([twice] if twice else [])])


@given(cuts, st.booleans(), st.integers(0, LAYERS))
def test_a_node_with_the_files_for_its_layers_has_all_their_pieces(cut, tied, number):
    ends = list(zip([0, *cut], cut, strict=False))
    part = ModelPart(range(*ends[number % len(ends)]), LAYERS, tied)
    absent = set(FILES.values()) - files_for([part], FILES)
    assert part.pieces <= set(pieces_without(absent, FILES, LAYERS, tied))
    lacking = set(FILES.values()) - absent
    assert not part.pieces & set(pieces_without(lacking, FILES, LAYERS, tied))


def test_layers_that_only_predict_further_tokens_are_needed_by_no_stage():
    """GLM 4.5 stores one behind its decoder layers; Transformers does not build it."""
    further = f"model.layers.{LAYERS}.mlp.experts.0.up_proj.weight"
    files = {**FILES, further: "further.safetensors"}
    for part in (
        ModelPart(range(2, LAYERS), LAYERS, False),
        ModelPart(range(LAYERS), LAYERS, True),
    ):
        assert further not in part.needed(files)
        assert "further.safetensors" not in files_for([part], files)
    assert pieces_without({"further.safetensors"}, files, LAYERS, False) == [*range(-1, LAYERS + 1)]


def test_a_node_in_the_middle_has_neither_the_embeddings_nor_a_head_that_is_tied_to_them():
    files = {name: file for name, file in FILES.items() if not name.startswith("lm_head")}
    files["model.norm.weight"] = files[f"model.layers.{LAYERS - 1}.a"]
    first, last = files["model.embed_tokens.weight"], files["model.norm.weight"]
    assert pieces_without({first, last}, files, LAYERS, tied=True) == [2, 3]
    assert pieces_without({first}, files, LAYERS, tied=True) == [2, 3, 4, 5]
    assert pieces_without({first}, files, LAYERS, tied=False) == [2, 3, 4, 5, LAYERS]
