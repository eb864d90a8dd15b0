"""Compiled layers: `compile: true`."""

from __future__ import annotations

import functools
import sys
import sysconfig

import numpy as np
import pytest
import torch
from support.facts import refuses
from support.ranks import loaded
from support.tiny_model import make_model
from torch._dynamo.testing import CompileCounter

from hearth.base.errors import ConfigError, ModelError
from hearth.data.rows import Batch
from hearth.model.compilation import check_compiler, compile_layers

SHAPES = [(1, 20), (1, 33), (2, 12), (4, 50), (1, 8), (3, 7)]


def batch(rows, tokens):
    """Return rows of two documents each."""
    ids = np.random.default_rng(tokens).integers(0, 250, (rows, tokens))
    positions = np.tile([*range(tokens // 3), *range(tokens - tokens // 3)], (rows, 1))
    return Batch(ids, ids, positions, [])


def gradients(model, shapes=SHAPES):
    """Return the gradients of one micro-batch of each shape, as one vector."""
    model.network.zero_grad()
    for shape in shapes:
        model.loss(batch(*shape), 100).backward()
    return torch.cat([parameter.grad.flatten() for _, parameter in model.trainable()])


@pytest.fixture
def counted(monkeypatch):
    """Have torch.compile count the versions that it makes, and generate no code for them."""
    counter = CompileCounter()
    compiling = functools.partial(torch.compile, backend=counter)
    monkeypatch.setattr("hearth.model.compilation.torch.compile", compiling)
    torch.compiler.reset()
    return counter


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({}, id="adapter"),
        pytest.param({"lora": "off"}, id="whole model", marks=pytest.mark.rotated),
        pytest.param(
            {"gradient_checkpointing": True}, id="checkpointed", marks=pytest.mark.rotated
        ),
    ],
)
def test_rows_of_all_shapes_and_all_layers_share_two_versions(tiny_model, counted, how):
    plain, compiled = loaded(tiny_model, **how), loaded(tiny_model, compile=True, **how)
    assert (gradients(compiled) - gradients(plain)).norm() < 1e-12 * gradients(plain).norm()
    assert counted.frame_count == 2


def test_evaluations_and_answers_are_not_compiled(tiny_model, counted):
    compiled = loaded(tiny_model, compile=True)
    with torch.no_grad():
        compiled.loss(batch(2, 20), 1)
    compiled.generate([1, 2, 3], 4)
    assert counted.frame_count == 0


@pytest.mark.rotated
def test_generated_code_learns_the_same_to_rounding(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    torch.compiler.reset()
    folder = make_model(tmp_path / "one", num_hidden_layers=1)
    shapes = [(1, 40), (1, 17)]
    plain, compiled = (
        gradients(loaded(folder, "fp32", compile=chosen), shapes) for chosen in (False, True)
    )
    assert (tmp_path / "compiled").is_dir()
    assert 0 < (compiled - plain).norm() < 1e-5 * plain.norm()


@pytest.mark.parametrize(
    ("device", "headers", "facts"),
    [
        ("cpu", True, ["C++ compiler", "apt-get install g++"]),
        ("cuda", True, ["C compiler", "apt-get install gcc libc6-dev"]),
        ("cpu", False, ["g++", "python{}.{}-dev".format(*sys.version_info)]),
    ],
)
def test_a_node_without_a_compiler_is_refused_with_the_cure(
    tmp_path, monkeypatch, device, headers, facts
):
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "Python.h").touch()
    folder = tmp_path if headers else tmp_path / "none"
    monkeypatch.setattr(sysconfig, "get_path", lambda *_: str(folder))
    with refuses(ConfigError, "compile", *facts, "compile=off"):
        check_compiler(torch.device(device))
    monkeypatch.setenv("CC", "/opt/cc")
    monkeypatch.setenv("CXX", "/opt/c++")
    if headers:
        check_compiler(torch.device(device))


def test_a_model_that_does_not_declare_its_layers_is_refused(tiny_model, monkeypatch):
    network = loaded(tiny_model).network.get_base_model()
    monkeypatch.setattr(network, "_no_split_modules", None)
    with refuses(ModelError, "LlamaForCausalLM", "compile=off"):
        compile_layers(network)
