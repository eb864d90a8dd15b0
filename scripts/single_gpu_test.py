#!/usr/bin/env python3
"""Test whether this one machine can train, before it joins a cluster.

Shows what the machine has, whether the installed PyTorch supports it, and runs a forward and a
backward pass of a small transformer on the CPU and on each GPU against float64.

Exit status: 0 everything here works (a machine without an NVIDIA GPU trains on its CPU);
1 it can train, but an NVIDIA GPU here cannot be used; 2 it cannot train.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from shown import REPOSITORY, enter_venv

# The oldest driver branch that runs a CUDA major version (NVIDIA, "CUDA Compatibility").
DRIVER_FLOOR = {12: 525, 13: 580}

# Largest relative difference of the gradients from float64 that counts as rounding.
TOLERANCE = {"fp32": 1e-4, "fp16": 0.05, "bf16": 0.05}


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


@dataclass(frozen=True)
class Finding:
    """One finding: a `note`, an `unused` GPU, or something `broken`."""

    level: Literal["note", "unused", "broken"]
    text: str
    remedy: str = ""


# ---- diagnosis (pure) ---------------------------------------------------------------------------


def judge(facts: Mapping[str, Any]) -> list[Finding]:
    """Return the problems of this machine with their fixes, causes before their effects."""
    findings = [*_judge_driver(facts), *_judge_torch(facts)]
    driver = facts["driver"]
    if facts["cuda"] and driver and not facts["devices"] and not findings:
        findings += _unused(
            f"Driver {driver} is loaded, but PyTorch sees no GPU: "
            f"{facts['cuda_error'] or 'it gives no reason'}.",
            "Check that CUDA_VISIBLE_DEVICES does not hide them and that this user may open "
            "/dev/nvidia*.",
        )
    if not facts["cards"] and not facts["gpus"] and not driver:
        findings.append(Finding("note", "There is no NVIDIA GPU here: training runs on the CPU."))
    return findings


def _unused(text: str, remedy: str) -> list[Finding]:
    return [Finding("unused", text, remedy)]


def _judge_driver(facts: Mapping[str, Any]) -> list[Finding]:
    if facts["cards"] and not facts["driver"]:
        return _unused(
            "An NVIDIA GPU is on the PCI bus, but no NVIDIA driver is loaded.",
            "Install driver 580 or newer with open kernel modules, then reboot. "
            "With Secure Boot its modules must be signed.",
        )
    if facts["driver"] and facts["smi_error"] and not facts["devices"]:
        return _unused(
            f"Driver {facts['driver']} is loaded, but nvidia-smi says: {facts['smi_error']}",
            "Reboot this machine: after an upgrade, the kernel module and the driver's "
            "libraries differ until then. If it stays so, look for NVRM lines in `sudo dmesg`.",
        )
    return []


def _judge_torch(facts: Mapping[str, Any]) -> list[Finding]:
    from hearth.base.compiler import install_command
    from hearth.verify.judgement import unsupported_gpus

    torch, cuda, driver = facts["torch"], facts["cuda"], facts["driver"]
    if facts["torch_error"]:
        why = f"PyTorch cannot be imported by {facts['executable']}: {facts['torch_error']}"
        return [Finding("broken", why, "Run ./scripts/setup, then this again.")]
    if cuda is None:
        if not facts["cards"] and not facts["gpus"]:
            return []
        remedy = "With a working driver (580 or newer) ./scripts/setup installs the CUDA build."
        return _unused(f"PyTorch {torch} is a build without CUDA.", remedy)
    findings = []
    floor = DRIVER_FLOOR.get(int(cuda.split(".")[0]), 0)
    if driver and int(driver.split(".")[0]) < floor:
        why = f"Driver {driver} is too old for PyTorch {torch}: CUDA {cuda} needs {floor} or newer."
        findings += _unused(why, f"Install driver {floor} or newer.")
    for gpu in unsupported_gpus(facts):
        findings += _unused(
            f"PyTorch {torch} has no code for the {gpu['name']} (compute capability "
            f"{gpu['capability']}); it is built for {' '.join(facts['arch'])}.",
            "Cards before Turing (7.5) train on the CPU here or stay out of the cluster; a newer "
            "card needs a newer PyTorch than requirements/gpu.lock names.",
        )
    if facts["devices"] and facts["build_packages"]:
        findings += _unused(
            "No C compiler, or no headers of Python: Unsloth's kernels cannot be built.",
            install_command(facts["build_packages"]),
        )
    return findings


def judge_passes(passes: list[Pass]) -> list[Finding]:
    """Return findings for passes that failed, or whose gradients differ beyond rounding."""
    findings = []
    for one in passes:
        where, allowed = f"The {one.precision} pass on {one.device}", TOLERANCE[one.precision]
        if one.error:
            findings.append(Finding("broken", f"{where} failed: {one.error}"))
        elif one.difference is None or not one.difference <= allowed:
            wrong = (
                f"{where} gives wrong gradients: {one.difference:.2g} off, {allowed:g} is allowed."
            )
            remedy = "Suspect the hardware (memory, overclocking) or the driver."
            findings.append(Finding("broken", wrong, remedy))
    return findings


def exit_status(findings: list[Finding]) -> int:
    """Return 0, 1 or 2 as the module says."""
    return max((["note", "unused", "broken"].index(f.level) for f in findings), default=0)


# ---- facts about this machine -------------------------------------------------------------------


def inspect() -> dict[str, Any]:
    """Return the facts that `judge` needs: those of `hearth.verify.facts`, and more on failures."""
    from hearth.verify.facts import look

    facts = look("127.0.0.1", REPOSITORY)["facts"]
    driver = kernel_driver() or next((gpu["driver"] for gpu in facts["gpus"]), None)
    errors = {"torch_error": "", "cuda_error": "", "smi_error": ""}
    try:
        import torch

        if facts["cuda"] and not facts["devices"]:
            torch.cuda.init()
    except ImportError as error:
        errors["torch_error"] = str(error)
    except Exception as error:  # a wheel for other hardware, a missing library …
        kind = "cuda_error" if "torch" in sys.modules else "torch_error"
        errors[kind] = f"{type(error).__name__}: {error}".splitlines()[0]
    if driver and not facts["gpus"]:
        errors["smi_error"] = smi_error()
    return {"executable": sys.executable, "driver": driver, **facts, **errors}


def kernel_driver(version: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """Return the version of the loaded NVIDIA kernel module, None without one."""
    try:
        match = re.search(r"Kernel Module(?: for \S+)?\s+([\d.]+)", version.read_text())
    except OSError:
        return None
    return match.group(1) if match else None


def smi_error() -> str:
    """Return the first line of an nvidia-smi that names no GPU, '' if it is not installed."""
    try:
        done = subprocess.run(["nvidia-smi"], capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        return ""
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return next(iter((done.stdout + done.stderr).strip().splitlines()), "nothing")


# ---- the passes ---------------------------------------------------------------------------------


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
    from hearth.verify.judgement import supports

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


# ---- output -------------------------------------------------------------------------------------


def describe(facts: Mapping[str, Any], passes: list[Pass], findings: list[Finding]) -> str:
    """Return the report as text."""
    lines = [("machine", f"{platform.node()}, Python {facts['python']}")]
    for number, gpu in enumerate(facts["gpus"]):
        memory = f"{gpu['memory_mib']} MiB" if gpu["memory_mib"] else "memory shared with the CPU"
        about = f"{gpu['name']}, {memory}, compute capability {gpu['capability']}"
        lines.append((f"GPU {number}", about))
    lines.append(("driver", facts["driver"] or "no NVIDIA driver"))
    if facts["torch"]:
        cuda = f"CUDA {facts['cuda']}, NCCL {facts['nccl']}"
        lines.append(
            ("PyTorch", f"{facts['torch']}, {cuda if facts['cuda'] else 'built without CUDA'}")
        )
    if facts["arch"]:
        lines.append(("built for", " ".join(facts["arch"])))
    for one in passes:
        memory = f", {one.memory} MiB" if one.memory else ""
        result = f"failed: {one.error}"
        if not one.error:
            result = (
                f"forward and backward in {one.seconds:.2f} s{memory}, loss {one.loss:.3f}, "
                f"gradients {one.difference:.1e} off float64"
            )
        lines.append((f"{one.device} {one.precision}", result))
    report = [f"{name:<12}{text}" for name, text in lines]
    for finding in findings:
        report += ["", finding.text] + ([f"  -> {finding.remedy}"] if finding.remedy else [])
    closing = (
        "Everything that this machine has works.",
        "This machine can train, but not with all that it has.",
        "This machine cannot train yet.",
    )
    return "\n".join([*report, "", closing[exit_status(findings)]])


def main() -> int:
    """Inspect the machine, judge it, run the passes, report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    arguments = parser.parse_args()
    enter_venv("single_gpu_test.py")
    facts = inspect()
    passes = run_passes(facts)
    findings = [*judge(facts), *judge_passes(passes)]
    status = exit_status(findings)
    if arguments.json:
        each = {"passes": passes, "findings": findings}
        report = {name: [asdict(one) for one in these] for name, these in each.items()}
        print(json.dumps({"status": status, "machine": facts, **report}, indent=2))
    else:
        print(describe(facts, passes, findings))
    return status


if __name__ == "__main__":
    sys.exit(main())
