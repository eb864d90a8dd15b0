"""Passes that show whether a machine can train: of a small transformer, and of Unsloth.

The transformer runs on each device and is compared with float64. Unsloth loads a tiny model in 4
bits, in a process that may crash.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hearth.base.nvidia import supports, unsupported_gpus
from hearth.base.places import python_path
from hearth.diagnose.catalogue import ended_by


@dataclass(frozen=True)
class Pass:
    """A forward and backward pass: seconds, peak memory in MiB, difference from float64."""

    device: str
    precision: str
    loss: float | None = None
    difference: float | None = None
    seconds: float | None = None
    memory: int | None = None
    error: str | None = None


def _gradients(device: str, precision: str) -> tuple[float, Any]:
    """Return loss and gradients (one float64 vector) of the same small causal transformer."""
    import torch

    width, vocabulary, rows, length = 128, 512, 4, 128
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(
        width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
    )
    model = torch.nn.ModuleDict(
        {
            "embed": torch.nn.Embedding(vocabulary, width),
            "body": torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
            "head": torch.nn.Linear(width, vocabulary),
        }
    )
    tokens = torch.randint(vocabulary, (rows, length + 1)).to(device)
    master = torch.float64 if precision == "fp64" else torch.float32
    model.to(device, master)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(length, device, master)
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    kind = torch.device(device).type
    with torch.autocast(kind, dtype=half, enabled=half is not None):
        hidden = model["body"](model["embed"](tokens[:, :-1]), mask=mask, is_causal=True)
        logits = model["head"](hidden)
    loss = torch.nn.functional.cross_entropy(
        logits.to(master).flatten(0, 1), tokens[:, 1:].flatten()
    )
    loss.backward()
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    return loss.item(), flat.double().cpu()


def run_pass(device: str, precision: str, reference: Any) -> Pass:
    """Run one forward and backward pass, and compare with the gradients that float64 gives."""
    import torch

    on_gpu = device.startswith("cuda")
    try:
        if on_gpu:
            torch.cuda.reset_peak_memory_stats(device)
        began = time.perf_counter()
        loss, gradients = _gradients(device, precision)
        seconds = time.perf_counter() - began
    except Exception as error:  # whatever a driver or a kernel throws is the result
        return Pass(device, precision, error=str(error).splitlines()[0] or type(error).__name__)
    return Pass(
        device,
        precision,
        loss=loss,
        difference=((gradients - reference).norm() / reference.norm()).item(),
        seconds=seconds,
        memory=torch.cuda.max_memory_allocated(device) >> 20 if on_gpu else None,
    )


def run_passes(facts: Mapping[str, Any]) -> list[Pass]:
    """Run the CPU in fp32 and bf16, then each GPU with code in fp32 and its half precision."""
    if facts["torch_error"]:
        return []
    import torch

    plan = [("cpu", "fp32"), ("cpu", "bf16")]
    for number in range(facts["devices"]):
        capability = torch.cuda.get_device_capability(number)
        if supports(facts["arch"], ".".join(map(str, capability))):
            half = "bf16" if capability >= (8, 0) else "fp16"
            plan += [(f"cuda:{number}", "fp32"), (f"cuda:{number}", half)]
    _, reference = _gradients("cpu", "fp64")
    return [run_pass(device, precision, reference) for device, precision in plan]


LIMIT = 600.0
"""Seconds for the whole attempt: the first one on a machine compiles kernels."""

_CODE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class UnslothPass:
    """One step of Unsloth with a tiny model in 4 bits.

    Without an attempt `not_tried` says why. A failed one has the part that `failed` (import, load
    in 4 bits, adapter, forward and backward), its `error` and, where it is known, a `remedy`.
    """

    not_tried: str = ""
    failed: str = ""
    error: str = ""
    remedy: str = ""
    loss: float | None = None
    seconds: float | None = None


def run_unsloth(facts: Mapping[str, Any], limit: float = LIMIT) -> UnslothPass:
    """Try Unsloth if the machine of `facts` has a GPU for it; end it after `limit` seconds."""
    if facts["torch_error"] or not facts["devices"]:
        return UnslothPass(not_tried="there is no NVIDIA GPU that PyTorch can use")
    if unsupported_gpus(facts):
        return UnslothPass(not_tried="PyTorch has no code for a GPU here")
    found = importlib.util.find_spec("unsloth")
    if found is None or found.origin is None:  # a folder of that name is no package
        return UnslothPass(not_tried="Unsloth is not installed")
    return _tried(limit)


def _tried(limit: float) -> UnslothPass:
    """Run the probe and return how far it came."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = python_path(_CODE, os.environ)
        process = subprocess.Popen(
            [sys.executable, "-m", "hearth.node.unsloth_probe", folder],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        hung = ""
        try:
            output, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)  # with the compilers that it has started
            output, errors = process.communicate()
            hung = f"it did not end within {limit:g} s"
    reports = [report for line in output.splitlines() if (report := _report(line))]
    parts = [report["part"] for report in reports if "part" in report]
    losses = [report["loss"] for report in reports if "loss" in report]
    if losses and not hung:  # a library may still fail while Python ends
        return UnslothPass(loss=losses[0], seconds=time.monotonic() - began)
    failed = parts[-1] if parts else "start"
    if hung:
        return UnslothPass(failed=failed, error=hung)
    error, cure = ended_by(process.returncode, errors)
    return UnslothPass(failed=failed, error=error, remedy=" ".join(cure))


def _report(line: str) -> dict[str, Any] | None:
    """Return the report of the probe in a line of its output; Unsloth prints there, too."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
