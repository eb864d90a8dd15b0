"""scripts/single_gpu_test.py: what it says of machines. The GPUs are stand-ins: plain records."""

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.facts import assert_names
from support.waiting import HANG

SCRIPT = Path(__file__).parents[3] / "scripts" / "single_gpu_test.py"
spec = importlib.util.spec_from_file_location("single_gpu_test", SCRIPT)
gpu_test = importlib.util.module_from_spec(spec)
sys.modules["single_gpu_test"] = gpu_test
spec.loader.exec_module(gpu_test)

CUDA_13 = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
RTX_4090 = gpu_test.Gpu("NVIDIA GeForce RTX 4090", (8, 9), 24564)
GTX_1080 = gpu_test.Gpu("NVIDIA GeForce GTX 1080", (6, 1), 8192)
CPU_TORCH = gpu_test.Torch("2.13.0+cpu")
GPU_TORCH = gpu_test.Torch("2.13.0", "13.0", "2.29.7", CUDA_13, (RTX_4090,))
BARE = gpu_test.Machine(python="python3", torch=CPU_TORCH)
GOOD = gpu_test.Machine(
    python="python3",
    pci=("0000:01:00.0",),
    kernel_driver="580.65.06",
    smi_driver="580.65.06",
    smi_gpus=(RTX_4090,),
    torch=GPU_TORCH,
)
BLIND = replace(GPU_TORCH, gpus=())

DRIFTED = "Failed to initialize NVML: Driver/library version mismatch"
MACHINES = {
    "no GPU": (BARE, 0, ["NVIDIA"]),
    "no torch": (replace(BARE, torch=None), 2, ["PyTorch", "python3"]),
    "broken torch": (
        replace(BARE, torch=None, torch_error="OSError: libcudart.so.13"),
        *(2, ["python3", "OSError: libcudart.so.13"]),
    ),
    "no driver": (replace(BARE, pci=("0000:01:00.0",)), 1, ["0000:01:00.0", "driver"]),
    "CPU build beside a GPU": (replace(GOOD, torch=CPU_TORCH), 1, ["2.13.0+cpu", "CUDA"]),
    "module and libraries differ": (
        replace(GOOD, smi_gpus=(), smi_error=DRIFTED, torch=BLIND),
        *(1, ["versions", "580.65.06"]),
    ),
    "driver fallen over": (
        replace(GOOD, smi_gpus=(), smi_error="No devices were found", torch=BLIND),
        *(1, ["nvidia-smi", "No devices were found"]),
    ),
    "old driver": (
        replace(GOOD, kernel_driver="550.163.01", torch=BLIND),
        *(1, ["Driver 550.163.01", "PyTorch 2.13.0", "CUDA 13.0 needs 580"]),
    ),
    "old GPU": (
        replace(GOOD, smi_gpus=(GTX_1080,), torch=replace(GPU_TORCH, gpus=(GTX_1080,))),
        *(1, ["GPU 0", "NVIDIA GeForce GTX 1080", "6.1"]),
    ),
    "hidden GPU": (replace(GOOD, torch=replace(BLIND, error="CUDA error")), 1, ["CUDA error"]),
    "driver without its tools": (
        replace(GOOD, smi_driver=None, smi_gpus=(), torch=BLIND),
        *(1, ["Driver 580.65.06", "PyTorch"]),
    ),
}


@pytest.mark.parametrize(("machine", "status", "facts"), MACHINES.values(), ids=MACHINES.keys())
def test_says_what_is_missing_on(machine, status, facts):
    findings = gpu_test.judge(machine)
    assert_names("\n".join(finding.text for finding in findings), *facts)
    assert gpu_test.exit_status(findings) == status
    assert all(finding.remedy for finding in findings if finding.level != "note")
    assert_names(gpu_test.describe(machine, [], findings), *facts)


def test_has_nothing_to_say_of_a_good_machine():
    assert gpu_test.judge(GOOD) == []
    assert gpu_test.usable_gpus(GOOD) == [0]
    assert gpu_test.exit_status([]) == 0


def test_runs_no_pass_on_a_gpu_that_torch_has_no_code_for():
    mixed = replace(GOOD, torch=replace(GPU_TORCH, gpus=(GTX_1080, RTX_4090)))
    assert gpu_test.usable_gpus(mixed) == [1]


@pytest.mark.parametrize(
    ("architectures", "capability", "runs"),
    [
        (("sm_80",), (8, 0), True),
        (("sm_80",), (8, 9), True),  # machine code runs on later minors
        (("sm_89",), (8, 6), False),
        (("sm_80",), (9, 0), False),  # and on no other major
        (("sm_80", "compute_80"), (12, 0), True),  # PTX is compiled for newer ones
        (("compute_90",), (8, 9), False),
        (("sm_90a",), (9, 0), True),
        (("sm_100a",), (10, 3), False),
        (("sm_100f",), (10, 3), True),
        ((), (8, 9), False),
    ],
)
def test_knows_which_gpus_a_build_has_code_for(architectures, capability, runs):
    assert gpu_test.supports(architectures, capability) is runs


def test_reads_nvidia_smi():
    driver, gpus = gpu_test.parse_smi(
        "NVIDIA GeForce RTX 4090, 24564, 8.9, 580.65.06\nNVIDIA GB10, [N/A], 12.1, 580.65.06\n"
    )
    assert driver == "580.65.06"
    assert gpus == (RTX_4090, gpu_test.Gpu("NVIDIA GB10", (12, 1)))
    assert gpu_test.parse_smi("Failed to initialize NVML: Unknown Error\n") == (None, ())


@pytest.mark.parametrize(
    "line",
    [
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 07:14:33 UTC 2025",
    ],
)
def test_reads_the_loaded_kernel_module(tmp_path, line):
    (tmp_path / "version").write_text(line)
    assert gpu_test.kernel_driver(tmp_path / "version") == "580.65.06"
    assert gpu_test.kernel_driver(tmp_path / "none") is None


def test_finds_nvidia_display_controllers_on_the_pci_bus(tmp_path):
    for address, vendor, kind in [
        ("0000:01:00.0", "0x10de", "0x030000"),
        ("0000:01:00.1", "0x10de", "0x040300"),  # its sound
        ("0000:02:00.0", "0x10de", "0x030200"),  # no display attached to it
        ("0000:00:02.0", "0x8086", "0x030000"),
    ]:
        device = tmp_path / address
        device.mkdir()
        (device / "vendor").write_text(vendor + "\n")
        (device / "class").write_text(kind + "\n")
    assert gpu_test.pci_gpus(tmp_path) == ("0000:01:00.0", "0000:02:00.0")


def test_wrong_gradients_and_failed_passes_are_broken():
    passes = [
        gpu_test.Pass("cpu", "fp32", 6.0, 1e-7, 0.1),
        gpu_test.Pass("cuda:0", "fp32", 6.0, 0.3, 0.1),
        gpu_test.Pass("cuda:0", "bf16", float("nan"), float("nan"), 0.1),
        gpu_test.Pass("cuda:1", "fp32", error="no kernel image is available"),
    ]
    findings = gpu_test.judge_passes(passes)
    assert [finding.level for finding in findings] == ["broken"] * 3
    assert_names(findings[2].text, "cuda:1", passes[3].error)
    assert gpu_test.exit_status(findings) == 2


def test_passes_on_the_processor_here():
    done = subprocess.run(
        [sys.executable, SCRIPT, "--json"], capture_output=True, text=True, timeout=HANG
    )
    report = json.loads(done.stdout)
    assert done.returncode == report["status"]
    on_cpu = [one for one in report["passes"] if one["device"] == "cpu"]
    assert [one["precision"] for one in on_cpu] == ["fp32", "bf16"]
    assert all(one["error"] is None for one in on_cpu)
