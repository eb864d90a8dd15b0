#!/usr/bin/env python3
"""Tests whether this one machine can train, before it joins a cluster.

Shows what the machine has, whether the installed PyTorch supports it, and runs a forward and a
backward pass of a small transformer on the CPU and on each GPU against float64.

Exit status: 0 everything here works (a machine without an NVIDIA GPU trains on its CPU);
1 it can train, but an NVIDIA GPU here cannot be used; 2 it cannot train.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any, Literal

REPOSITORY = Path(__file__).resolve().parent.parent
VENV_PYTHON = REPOSITORY / ".venv" / "bin" / "python"

# The oldest driver branch that runs a CUDA major version (NVIDIA, "CUDA Compatibility").
DRIVER_FLOOR = {12: 525, 13: 580}

# Largest relative difference of the gradients from float64 that counts as rounding.
TOLERANCE = {"fp32": 1e-4, "fp16": 0.05, "bf16": 0.05}


@dataclasses.dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU as reported by the driver or PyTorch; memory in MiB, None if unknown."""

    name: str
    capability: tuple[int, int]
    memory: int | None = None


@dataclasses.dataclass(frozen=True)
class Torch:
    """The installed PyTorch; `cuda` is None in a CPU build."""

    version: str
    cuda: str | None = None
    nccl: str | None = None
    architectures: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    error: str | None = None


@dataclasses.dataclass(frozen=True)
class Machine:
    """Facts about this machine: `smi_gpus` from nvidia-smi, `kernel_driver` the loaded module."""

    python: str
    pci: tuple[str, ...] = ()
    kernel_driver: str | None = None
    smi_driver: str | None = None
    smi_gpus: tuple[Gpu, ...] = ()
    smi_error: str | None = None
    torch: Torch | None = None
    torch_error: str | None = None

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs by PyTorch's numbering, else by nvidia-smi's."""
        return (self.torch.gpus if self.torch else ()) or self.smi_gpus

    @property
    def driver(self) -> str | None:
        """The version of the NVIDIA driver, None without one."""
        return self.kernel_driver or self.smi_driver


@dataclasses.dataclass(frozen=True)
class Pass:
    """A forward and backward pass: seconds, peak memory in MiB, difference from float64."""

    device: str
    precision: str
    loss: float | None = None
    difference: float | None = None
    seconds: float | None = None
    memory: int | None = None
    error: str | None = None


@dataclasses.dataclass(frozen=True)
class Finding:
    """One finding: a `note`, an `unused` GPU, or something `broken`."""

    level: Literal["note", "unused", "broken"]
    text: str
    remedy: str = ""


# ---- diagnosis (pure) ---------------------------------------------------------------------------


def supports(architectures: tuple[str, ...], capability: tuple[int, int]) -> bool:
    """Whether a build for these architectures (`sm_90`, `compute_120` …) runs on a GPU.

    Machine code (sm) runs on the same major version from its own minor on, `a` variants on
    exactly theirs; PTX (compute) is compiled for anything newer. Source: CUDA C++ Programming
    Guide, "Compute Capability" and "Family-Specific Features".
    """
    for architecture in architectures:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", architecture)
        if not match:
            continue
        kind, major, minor, variant = match.groups()
        built = (int(major), int(minor))
        if variant == "a":
            fits = built == capability
        elif kind == "compute" and not variant:
            fits = built <= capability
        else:
            fits = built[0] == capability[0] and built[1] <= capability[1]
        if fits:
            return True
    return False


def driver_too_old(driver: str, cuda: str) -> int | None:
    """The driver branch that this CUDA needs, if this driver is older; else None."""
    floor = DRIVER_FLOOR.get(int(cuda.split(".")[0]))
    return floor if floor and int(driver.split(".")[0]) < floor else None


def judge(machine: Machine) -> list[Finding]:
    """The problems of this machine with their fixes, causes before their effects."""
    findings = [*_judge_driver(machine), *_judge_torch(machine)]
    torch = machine.torch
    if torch and torch.cuda and machine.driver and not torch.gpus and not findings:
        findings.append(
            Finding(
                "unused",
                f"Driver {machine.driver} is loaded, but PyTorch sees no GPU"
                + (f": {torch.error}" if torch.error else "."),
                "Check that CUDA_VISIBLE_DEVICES does not hide them and that this user may open "
                "/dev/nvidia*.",
            )
        )
    if not machine.pci and not machine.gpus and not machine.driver:
        findings.append(Finding("note", "There is no NVIDIA GPU here: training runs on the CPU."))
    return findings


def _judge_driver(machine: Machine) -> list[Finding]:
    if machine.smi_error and "mismatch" in machine.smi_error:
        loaded = f" ({machine.kernel_driver} is loaded)" if machine.kernel_driver else ""
        return [
            Finding(
                "unused",
                "The NVIDIA kernel module and the driver's libraries are of different "
                f"versions{loaded}; this is so after an upgrade.",
                "Reboot this machine.",
            )
        ]
    if machine.pci and not machine.driver:
        return [
            Finding(
                "unused",
                f"An NVIDIA GPU is on the PCI bus ({', '.join(machine.pci)}), but no NVIDIA "
                "driver is loaded.",
                "Install driver 580 or newer with open kernel modules, then reboot. "
                "With Secure Boot its modules must be signed.",
            )
        ]
    if machine.driver and machine.smi_error and not machine.gpus:
        return [
            Finding(
                "unused",
                f"Driver {machine.driver} is loaded, but nvidia-smi says: {machine.smi_error}",
                "Look for NVRM lines in `sudo dmesg`; a reboot often tells more.",
            )
        ]
    return []


def _judge_torch(machine: Machine) -> list[Finding]:
    torch = machine.torch
    if torch is None:
        why = f" ({machine.torch_error})" if machine.torch_error else ""
        return [
            Finding(
                "broken",
                f"PyTorch cannot be imported by {machine.python}{why}.",
                "Run ./scripts/setup, then this again.",
            )
        ]
    if torch.cuda is None:
        if not machine.gpus and not machine.pci:
            return []
        return [
            Finding(
                "unused",
                f"PyTorch {torch.version} is a build without CUDA.",
                "With a working driver (580 or newer) ./scripts/setup installs the CUDA build.",
            )
        ]
    findings = []
    if machine.driver and (floor := driver_too_old(machine.driver, torch.cuda)):
        findings.append(
            Finding(
                "unused",
                f"Driver {machine.driver} is too old for PyTorch {torch.version}: "
                f"CUDA {torch.cuda} needs {floor} or newer.",
                f"Install driver {floor} or newer.",
            )
        )
    for number, gpu in enumerate(machine.gpus):
        if not supports(torch.architectures, gpu.capability):
            findings.append(_unsupported(number, gpu, torch))
    return findings


def _unsupported(number: int, gpu: Gpu, torch: Torch) -> Finding:
    major, minor = gpu.capability
    return Finding(
        "unused",
        f"PyTorch {torch.version} has no code for GPU {number}, {gpu.name} (compute capability "
        f"{major}.{minor}); it is built for {' '.join(torch.architectures) or 'none'}.",
        "Cards before Turing (7.5) train on the CPU here or stay out of the cluster."
        if gpu.capability < (7, 5)
        else "This card needs a newer PyTorch build than requirements/gpu.lock names.",
    )


def judge_passes(passes: list[Pass]) -> list[Finding]:
    """Findings for passes that failed or whose gradients differ from float64 beyond rounding."""
    findings = []
    for one in passes:
        where = f"The {one.precision} pass on {one.device}"
        if one.error:
            findings.append(Finding("broken", f"{where} failed: {one.error}"))
        elif one.difference is None or not one.difference <= TOLERANCE[one.precision]:
            findings.append(
                Finding(
                    "broken",
                    f"{where} gives wrong gradients: {one.difference:.2g} off, "
                    f"{TOLERANCE[one.precision]:g} is allowed.",
                    "Suspect the hardware (memory, overclocking) or the driver.",
                )
            )
    return findings


def exit_status(findings: list[Finding]) -> int:
    """0, 1 or 2 as the module says."""
    return max((["note", "unused", "broken"].index(f.level) for f in findings), default=0)


def usable_gpus(machine: Machine) -> list[int]:
    """Numbers of the GPUs that PyTorch sees and has code for."""
    torch = machine.torch
    gpus = torch.gpus if torch else ()
    return [n for n, gpu in enumerate(gpus) if supports(torch.architectures, gpu.capability)]


# ---- facts about this machine -------------------------------------------------------------------


def pci_gpus(devices: Path = Path("/sys/bus/pci/devices")) -> tuple[str, ...]:
    """PCI addresses of NVIDIA display and 3D controllers, driver or not."""
    found = []
    for device in sorted(devices.glob("*")):
        try:
            vendor = (device / "vendor").read_text().strip()
            kind = (device / "class").read_text().strip()
        except OSError:
            continue
        if vendor == "0x10de" and kind.startswith("0x03"):
            found.append(device.name)
    return tuple(found)


def kernel_driver(version: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """Version of the NVIDIA kernel module that is loaded."""
    try:
        match = re.search(r"Kernel Module(?: for \S+)?\s+([\d.]+)", version.read_text())
    except OSError:
        return None
    return match.group(1) if match else None


def parse_smi(output: str) -> tuple[str | None, tuple[Gpu, ...]]:
    """Driver and GPUs from nvidia-smi's lines `name, MiB, capability, driver`."""
    driver, gpus = None, []
    for line in output.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 4 or not re.fullmatch(r"\d+\.\d+", fields[2]):
            continue
        name, memory, capability, driver = fields
        major, minor = capability.split(".")
        # GPUs that share memory with the CPU report [N/A].
        memory_mib = int(memory) if memory.isdigit() else None
        gpus.append(Gpu(name, (int(major), int(minor)), memory_mib))
    return driver, tuple(gpus)


def ask_smi() -> tuple[str | None, tuple[Gpu, ...], str | None]:
    """Driver, GPUs and error of nvidia-smi; all empty if it is not installed."""
    query = ["--query-gpu=name,memory.total,compute_cap,driver_version"]
    try:
        done = subprocess.run(
            ["nvidia-smi", *query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except FileNotFoundError:
        return None, (), None
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, (), str(error)
    driver, gpus = parse_smi(done.stdout)
    words = (done.stdout + done.stderr).strip().splitlines()
    return driver, gpus, None if gpus else (words[0] if words else f"exit {done.returncode}")


def ask_torch() -> Torch:
    """The installed PyTorch and its devices. Import errors propagate."""
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        gpus = []
        for number in range(count):
            its = torch.cuda.get_device_properties(number)
            gpus.append(Gpu(its.name, (its.major, its.minor), its.total_memory >> 20))
    nccl = None
    if torch.version.cuda and torch.distributed.is_nccl_available():
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
    return Torch(
        version=torch.__version__,
        cuda=torch.version.cuda,
        nccl=nccl,
        architectures=tuple(torch.cuda.get_arch_list()),
        gpus=tuple(gpus),
        error=str(caught[0].message).splitlines()[0] if caught and not gpus else None,
    )


def look() -> Machine:
    """Everything about this machine that `judge` needs."""
    driver, gpus, error = ask_smi()
    torch, torch_error = None, None
    try:
        torch = ask_torch()
    except ModuleNotFoundError as missing:
        torch_error = str(missing)
    except Exception as broken:  # a wheel for other hardware, a missing library …
        torch_error = f"{type(broken).__name__}: {broken}".splitlines()[0]
    return Machine(
        python=sys.executable,
        pci=pci_gpus(),
        kernel_driver=kernel_driver(),
        smi_driver=driver,
        smi_gpus=gpus,
        smi_error=error,
        torch=torch,
        torch_error=torch_error,
    )


# ---- the passes ---------------------------------------------------------------------------------


def _gradients(device: str, precision: str) -> tuple[float, Any]:
    """Loss and all gradients, in one float64 vector, of the same small causal transformer."""
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
    """One forward and backward pass against the gradients that float64 gives."""
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


def run_passes(machine: Machine) -> list[Pass]:
    """The CPU in fp32 and bf16, then each usable GPU in fp32 and the half precision it has."""
    if machine.torch is None:
        return []
    plan = [("cpu", "fp32"), ("cpu", "bf16")]
    for number in usable_gpus(machine):
        half = "bf16" if machine.gpus[number].capability >= (8, 0) else "fp16"
        plan += [(f"cuda:{number}", "fp32"), (f"cuda:{number}", half)]
    _, reference = _gradients("cpu", "fp64")
    return [run_pass(device, precision, reference) for device, precision in plan]


# ---- output -------------------------------------------------------------------------------------


def describe(machine: Machine, passes: list[Pass], findings: list[Finding]) -> str:
    """The report as text."""
    lines = [("machine", f"{platform.node()}, Python {platform.python_version()}")]
    for number, gpu in enumerate(machine.gpus):
        memory = f"{gpu.memory} MiB" if gpu.memory else "memory shared with the CPU"
        capability = ".".join(map(str, gpu.capability))
        lines.append((f"GPU {number}", f"{gpu.name}, {memory}, compute capability {capability}"))
    lines.append(("driver", machine.driver or "no NVIDIA driver"))
    if torch := machine.torch:
        cuda = f"CUDA {torch.cuda}, NCCL {torch.nccl}" if torch.cuda else "built without CUDA"
        lines.append(("PyTorch", f"{torch.version}, {cuda}"))
        if torch.architectures:
            lines.append(("built for", " ".join(torch.architectures)))
    for one in passes:
        name = f"{one.device} {one.precision}"
        if one.error:
            lines.append((name, f"failed: {one.error}"))
            continue
        memory = f", {one.memory} MiB" if one.memory else ""
        lines.append(
            (
                name,
                f"forward and backward in {one.seconds:.2f} s{memory}, loss {one.loss:.3f}, "
                f"gradients {one.difference:.1e} off float64",
            )
        )
    report = [f"{name:<12}{text}" for name, text in lines]
    for finding in findings:
        report += ["", finding.text] + ([f"  -> {finding.remedy}"] if finding.remedy else [])
    closing = {
        0: "Everything that this machine has works.",
        1: "This machine can train, but not with all that it has.",
        2: "This machine cannot train yet.",
    }
    return "\n".join([*report, "", closing[exit_status(findings)]])


def main() -> int:
    """Inspect the machine, judge it, run the passes, report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    arguments = parser.parse_args()
    # If started with the system's Python, re-execute with the one that has PyTorch.
    outside = Path(sys.prefix) != VENV_PYTHON.parent.parent
    if outside and importlib.util.find_spec("torch") is None and VENV_PYTHON.exists():
        os.execv(VENV_PYTHON, [str(VENV_PYTHON), __file__, *sys.argv[1:]])

    machine = look()
    passes = run_passes(machine)
    findings = [*judge(machine), *judge_passes(passes)]
    if arguments.json:
        report = {
            "status": exit_status(findings),
            "machine": dataclasses.asdict(machine),
            "passes": [dataclasses.asdict(one) for one in passes],
            "findings": [dataclasses.asdict(finding) for finding in findings],
        }
        print(json.dumps(report, indent=2))
    else:
        print(describe(machine, passes, findings))
    return exit_status(findings)


if __name__ == "__main__":
    sys.exit(main())
