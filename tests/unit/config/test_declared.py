"""Values in a model's JSON files: odd ones are named with their file, and any content is judged."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.facts import assert_names

from hearth.config.declared import CONFIG, INDEX, TOKENIZER_CONFIG, problems
from hearth.config.presets import load_preset, preset_names
from hearth.config.shape import shape_of

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "attn_implementation": "flash_attention_2",
    "auto_map": {
        "AutoConfig": "configuration_x.XConfig",
        "AutoModel": "owner/name--modeling_x.X",
        "AutoTokenizer": ["tokenization-x.X", None],
    },
}
ODD = [
    *(
        (name, {"auto_map": value})
        for name in (CONFIG, TOKENIZER_CONFIG)
        for value in ("x", ["x"], 5)
    ),
    *(
        (CONFIG, {"auto_map": {"AutoModel": value}})
        for value in (5, {"a": 1}, "modeling", "../../up.X", "/etc/x.X", [["a.B"]], "a.B\n", "")
    ),
    *((INDEX, {"weight_map": value}) for value in (None, "x", ["x"], 5)),
    *(
        (INDEX, {"weight_map": {"a": value}})
        for value in (5, ["x"], None, "../x.safetensors", "/x.safetensors", "x\0.safetensors", "x")
    ),
    *((TOKENIZER_CONFIG, {"model_max_length": value}) for value in ("x", "12", ["x"], True, {})),
    *(
        (CONFIG, {name: 10**9})
        for name in ("num_hidden_layers", "n_layer", "encoder_layers", "num_local_experts", "depth")
    ),
    (CONFIG, {"num_hidden_layers": 500, "n_routed_experts": 500}),
    (CONFIG, {"depths": [10**8] * 10}),
    (CONFIG, {"text_config": {"num_hidden_layers": 10**9}}),
    *(
        (CONFIG, {name: 10**400})
        for name in ("vocab_size", "hidden_size", "head_dim", "n_positions")
    ),
    *(
        (CONFIG, {name: value})
        for name in ("attn_implementation", "_attn_implementation", "experts_implementation")
        for value in ("x/kernel", "x/kernel:layer", {"": "x/kernel"}, 5, ["sdpa"])
    ),
    (CONFIG, {"text_config": {"_attn_implementation_internal": "x/kernel"}}),
]


@pytest.mark.parametrize(("name", "content"), ODD, ids=lambda each: repr(each)[:40])
def test_what_a_library_would_stumble_over_is_named_with_its_file(name, content):
    (problem,) = problems({name: content})
    assert_names(problem, name)
    assert len(problem) < 400


def test_the_files_of_models_that_are_published_are_without_a_problem():
    assert problems({CONFIG: LLAMA}) == []
    assert problems({CONFIG: LLAMA | {"num_hidden_layers": 94, "num_experts": 512}}) == []
    assert problems({TOKENIZER_CONFIG: {"model_max_length": 10**30}}) == []
    assert problems({TOKENIZER_CONFIG: {"model_max_length": None}}) == []
    assert problems({INDEX: {"weight_map": {"a": "model-00001-of-00002.safetensors"}}}) == []
    for name in preset_names():
        if shape := load_preset(name).shape:
            assert problems({CONFIG: vars(shape)}) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)
NAMES = st.sampled_from([*LLAMA, "weight_map", "model_max_length", "n_layer", "text_config"])


@settings(deadline=None)
@given(st.dictionaries(NAMES, JSON))
def test_any_content_is_judged_and_has_a_shape_or_none(content):
    for name in (CONFIG, TOKENIZER_CONFIG, INDEX):
        assert all(isinstance(problem, str) for problem in problems({name: content}))
    shape_of(LLAMA | content)
