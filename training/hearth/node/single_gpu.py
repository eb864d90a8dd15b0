"""Whether this one machine can train: its GPUs, driver, PyTorch, and passes on each device."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hearth.base.nvidia import unsupported_gpus
from hearth.base.systems import install_command
from hearth.node.facts import facts_of_node
from hearth.node.passes import Pass, UnslothPass, run_passes, run_unsloth

# The oldest driver branch that runs a CUDA major version (NVIDIA, "CUDA Compatibility").
DRIVER_FLOOR = {12: 525, 13: 580}

# Largest relative difference of the gradients from float64 that counts as rounding.
TOLERANCE = {"fp32": 1e-4, "fp16": 0.05, "bf16": 0.05}


@dataclass(frozen=True)
class Trouble:
    """A finding about this machine: a `note`, an `unused` GPU, or something `broken`."""

    level: Literal["note", "unused", "broken"]
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class Examined:
    """A machine: the facts that `judge` needs, its passes, that of Unsloth, and the findings."""

    machine: Mapping[str, Any]
    passes: list[Pass]
    findings: list[Trouble]
    unsloth: UnslothPass

    @property
    def status(self) -> int:
        """0: everything works, 1: a GPU cannot be used, 2: the machine cannot train."""
        return max((["note", "unused", "broken"].index(f.level) for f in self.findings), default=0)


def examine(workspace: Path, install: str) -> Examined:
    """Inspect this machine, run the passes and judge both.

    `workspace` is looked at for a run under way; `install` is the command that installs packages.
    """
    machine = inspect(workspace)
    passes = run_passes(machine)
    unsloth = run_unsloth(machine)
    findings = [*judge(machine, install), *judge_passes(passes), *judge_unsloth(unsloth)]
    return Examined(machine, passes, findings, unsloth)


def judge(facts: Mapping[str, Any], install: str) -> list[Trouble]:
    """Return the problems of this machine with their fixes, causes before their effects."""
    findings = [*_judge_driver(facts), *_judge_torch(facts, install)]
    driver = facts["driver"]
    if facts["cuda"] and driver and not facts["devices"] and not findings:
        findings += _unused(
            f"Driver {driver} is loaded, but PyTorch sees no GPU: "
            f"{facts['cuda_error'] or 'it gives no reason'}.",
            "Check that CUDA_VISIBLE_DEVICES does not hide them and that this user may open "
            "/dev/nvidia*.",
        )
    if not facts["cards"] and not facts["gpus"] and not driver:
        findings.append(Trouble("note", "There is no NVIDIA GPU here: training runs on the CPU."))
    return findings


def _unused(text: str, remedy: str) -> list[Trouble]:
    return [Trouble("unused", text, remedy)]


def _judge_driver(facts: Mapping[str, Any]) -> list[Trouble]:
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


def _judge_torch(facts: Mapping[str, Any], install: str) -> list[Trouble]:
    torch, cuda, driver = facts["torch"], facts["cuda"], facts["driver"]
    if facts["torch_error"]:
        why = f"PyTorch cannot be imported by {facts['executable']}: {facts['torch_error']}"
        return [Trouble("broken", why, f"Run {install}, then this again.")]
    if cuda is None:
        if not facts["cards"] and not facts["gpus"]:
            return []
        remedy = f"With a working driver (580 or newer) {install} installs the CUDA build."
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


def judge_passes(passes: list[Pass]) -> list[Trouble]:
    """Return findings for passes that failed, or whose gradients differ beyond rounding."""
    findings = []
    for one in passes:
        where, allowed = f"The {one.precision} pass on {one.device}", TOLERANCE[one.precision]
        if one.error:
            findings.append(Trouble("broken", f"{where} failed: {one.error}"))
        elif one.difference is None or not one.difference <= allowed:
            wrong = (
                f"{where} gives wrong gradients: {one.difference:.2g} off, {allowed:g} is allowed."
            )
            remedy = "Suspect the hardware (memory, overclocking) or the driver."
            findings.append(Trouble("broken", wrong, remedy))
    return findings


def judge_unsloth(unsloth: UnslothPass) -> list[Trouble]:
    """Return a finding if Unsloth failed: without it the GPU still trains, by Transformers."""
    if not unsloth.failed:
        return []
    remedy = unsloth.remedy or "Reinstall requirements/gpu.lock."
    return _unused(
        f"Unsloth cannot train in 4 bits here. It failed at: {unsloth.failed}. {unsloth.error}",
        f"{remedy} Until then, train with backend=transformers.",
    )


def inspect(workspace: Path) -> dict[str, Any]:
    """Return the facts that `judge` needs: those of `hearth.node.facts`, and more on failures."""
    facts = facts_of_node("127.0.0.1", workspace)["facts"]
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
