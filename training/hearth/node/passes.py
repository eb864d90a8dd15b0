"""Forward and backward passes of a small transformer on each device, compared with float64."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hearth.base.nvidia import supports


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
