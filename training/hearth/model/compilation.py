"""torch.compile for the layers of a model: `compile: true`.

Every layer is compiled on its own and with dynamic shapes. All layers are alike and share the
result, which therefore takes as long as one layer's, and rows of other lengths need no other. There
are two versions: for one row at once, and for several.
"""

from __future__ import annotations

import functools
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from hearth.base.errors import ConfigError
from hearth.base.systems import install_command, missing_packages
from hearth.model.loaded import layers_of


def check_compiler(device: torch.device) -> None:
    """Raise `ConfigError` if this node lacks what torch.compile calls for layers on `device`."""
    headers = (Path(sysconfig.get_path("include", "posix_prefix")) / "Python.h").exists()
    on_cpu = device.type == "cpu"
    if lacking := missing_packages(sys.version_info[:2], headers, on_cpu):
        compiler = "C++" if on_cpu else "C"
        raise ConfigError(
            f"compile: torch.compile needs a {compiler} compiler and Python's headers, which this "
            f"node lacks; {install_command(lacking)}, or take compile=off"
        )


def compile_layers(base: torch.nn.Module) -> None:
    """Compile each layer of `base`, at its first use.

    Raises `ModelError` if the model does not declare its layers.
    """
    # The first layer would need versions of its own if its input alone had no gradient.
    base.enable_input_require_grads()
    for layer in layers_of(base, "compile=on cannot compile them; take compile=off"):
        layer.forward = _in_training(torch.compile(layer.forward, dynamic=True), layer.forward)


def _in_training(compiled: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `compiled` while gradients are computed, else `plain`.

    Evaluations and answers would each need versions of their own, for a few passes in a run.
    """

    @functools.wraps(plain)
    def forward(*inputs: Any, **named: Any) -> Any:
        return (compiled if torch.is_grad_enabled() else plain)(*inputs, **named)

    return forward
