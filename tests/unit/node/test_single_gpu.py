"""Faults of a single machine. The GPUs are stand-ins: plain records."""

import json
import sys
from dataclasses import asdict

import pytest
from support.facts import assert_line, assert_names
from support.programs import run
from support.repository import ROOT
from support.waiting import HANG

from hearth.node import single_gpu
from hearth.node.passes import Pass, UnslothPass, run_unsloth
from hearth.node.single_gpu import Examined, judge, judge_passes, judge_unsloth
from hearth_controller.doctor.single import show_single

RTX_4090 = {"name": "NVIDIA GeForce RTX 4090", "capability": "8.9", "memory_mib": 24564}
GTX_1080 = {"name": "NVIDIA GeForce GTX 1080", "capability": "6.1", "memory_mib": 8192}
BARE = {
    "executable": "python3",
    "python": "3.11.9",
    "torch": "2.13.0+cpu",
    "cuda": None,
    "nccl": None,
    "arch": [],
    "devices": 0,
    "gpus": [],
    "cards": 0,
    "driver": None,
    "torch_error": "",
    "cuda_error": "",
    "smi_error": "",
    "build_packages": [],
}
GOOD = BARE | {
    "torch": "2.13.0",
    "cuda": "13.0",
    "nccl": "2.29.7",
    "arch": ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"],
    "devices": 1,
    "gpus": [RTX_4090],
    "cards": 1,
    "driver": "580.65.06",
}
BLIND = GOOD | {"devices": 0}
SILENT = BLIND | {"gpus": []}
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"

MACHINES = {
    "no GPU": (BARE, 0, "There is no NVIDIA GPU"),
    "no torch": (BARE | {"torch": None, "torch_error": "No module named 'torch'"}, 2, "python3"),
    "broken torch": (BARE | {"torch_error": "OSError: libcudart.so.13"}, 2, "libcudart.so.13"),
    "no driver": (BARE | {"cards": 1}, 1, "no NVIDIA driver is loaded"),
    "CPU build beside a GPU": (
        GOOD | {"torch": "2.13.0+cpu", "cuda": None, "devices": 0},
        1,
        "without CUDA",
    ),
    "module and libraries differ": (SILENT | {"smi_error": MISMATCH}, 1, MISMATCH),
    "old driver": (BLIND | {"driver": "550.163.01"}, 1, "CUDA 13.0 needs 580"),
    "old GPU": (GOOD | {"gpus": [GTX_1080]}, 1, "NVIDIA GeForce GTX 1080"),
    "hidden GPU": (BLIND | {"cuda_error": "CUDA unknown error"}, 1, "CUDA unknown error"),
    "no compiler": (GOOD | {"build_packages": ["gcc", "libc6-dev"]}, 1, "No C compiler"),
    "driver without its tools": (SILENT, 1, "580.65.06 is loaded, but PyTorch sees no GPU"),
}


@pytest.mark.parametrize(("machine", "status", "words"), MACHINES.values(), ids=MACHINES.keys())
def test_says_what_is_missing_on(machine, status, words):
    findings = judge(machine, "./scripts/setup")
    assert [words in finding.text for finding in findings].count(True) == 1
    examined = Examined(machine, [], findings, UnslothPass())
    assert examined.status == status
    assert all(finding.remedy for finding in findings if finding.level != "note")


def test_has_nothing_to_say_of_a_good_machine():
    assert judge(GOOD, "./scripts/setup") == []


@pytest.mark.parametrize(
    "line",
    [
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 07:14:33 UTC 2025",
    ],
)
def test_reads_the_loaded_kernel_module(tmp_path, line):
    (tmp_path / "version").write_text(line)
    assert single_gpu.kernel_driver(tmp_path / "version") == "580.65.06"
    assert single_gpu.kernel_driver(tmp_path / "none") is None


def test_wrong_gradients_and_failed_passes_are_broken():
    passes = [
        Pass("cpu", "fp32", 6.0, 1e-7, 0.1),
        Pass("cuda:0", "fp32", 6.0, 0.3, 0.1),
        Pass("cuda:0", "bf16", float("nan"), float("nan"), 0.1),
        Pass("cuda:1", "fp32", error="no kernel image is available"),
    ]
    findings = judge_passes(passes)
    assert [finding.level for finding in findings] == ["broken"] * 3
    assert_names(findings[2].text, "cuda:1", "no kernel image is available")
    assert Examined(GOOD, passes, findings, UnslothPass()).status == 2


def test_passes_on_the_processor_here():
    done = run(sys.executable, ROOT / "scripts" / "single_gpu_test.py", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == report["status"]
    on_cpu = [one for one in report["passes"] if one["device"] == "cpu"]
    assert [one["precision"] for one in on_cpu] == ["fp32", "bf16"]
    assert all(one["error"] is None for one in on_cpu)
    if not report["machine"]["devices"]:
        assert "GPU" in report["unsloth"]["not_tried"]


@pytest.fixture
def unsloth(tmp_path, monkeypatch):
    """Return a function that tries a stand-in for Unsloth with this code in it."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)

    def tried(code: str, limit: float = HANG) -> UnslothPass:
        (tmp_path / "unsloth.py").write_text(code)
        return run_unsloth(GOOD, limit)

    return tried


STAND_IN = """
import torch
from transformers import AutoModelForCausalLM

def full(**_):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

class FastLanguageModel:
    def from_pretrained(folder, **_):
        {load}
        return AutoModelForCausalLM.from_pretrained(folder), None
    def get_peft_model(model, **_):
        {adapter}
        return model
    def for_training(model):
        {training}

torch.cuda.get_device_capability = lambda: (8, 9)
"""
NOTHING = {"load": "pass", "adapter": "pass", "training": "pass"}


@pytest.mark.parametrize(
    ("code", "part", "error"),
    [
        ("raise ImportError('libcudart.so.13: cannot open')", "import", "libcudart.so.13"),
        (STAND_IN.format(**NOTHING | {"load": "raise ValueError('bnb')"}), "load in 4 bits", "bnb"),
        (STAND_IN.format(**NOTHING | {"adapter": "raise KeyError('q')"}), "adapter", "q"),
        (
            STAND_IN.format(**NOTHING | {"training": "model.forward = full"}),
            "forward and backward",
            "CUDA out of memory",
        ),
        ("import os; os.kill(os.getpid(), 11)", "import", "SIGSEGV"),
    ],
    ids=["import", "load", "adapter", "backward", "crash"],
)
def test_the_part_of_unsloth_that_fails_is_named_with_its_cause(unsloth, code, part, error):
    tried = unsloth(code)
    assert tried.failed == part
    assert_names(tried.error, error)
    (finding,) = judge_unsloth(tried)
    assert finding.level == "unused"
    assert_names(finding.text, part, error)
    assert_names(finding.remedy, "backend=transformers")


def test_an_unsloth_that_hangs_is_ended(unsloth):
    tried = unsloth("import time; time.sleep(3600)", limit=10)
    assert (tried.failed, "10 s" in tried.error) == ("import", True)


def test_an_unsloth_that_trains_is_no_finding(unsloth):
    tried = unsloth(STAND_IN.format(**NOTHING))
    assert (tried.failed, tried.not_tried) == ("", "")
    assert tried.loss > 0
    assert judge_unsloth(tried) == []


def test_without_a_gpu_or_without_unsloth_it_is_not_tried():
    assert_names(run_unsloth(BARE).not_tried, "GPU")
    assert_names(run_unsloth(GOOD).not_tried, "Unsloth")
    old = GOOD | {"gpus": [GTX_1080]}
    assert_names(run_unsloth(old).not_tried, "GPU")
    assert judge_unsloth(run_unsloth(BARE)) == []


UNTRIED = UnslothPass()


def answer(machine: dict, *passes: Pass, unsloth: UnslothPass = UNTRIED) -> dict:
    """Return the answer of a node's command."""
    findings = [*judge(machine, "provision.yml --tags python"), *judge_passes([*passes])]
    facts = asdict(Examined(machine, [*passes], findings, unsloth))
    return {"facts": json.loads(json.dumps(facts)), "findings": []}


def test_each_node_has_its_lines_and_every_trouble_its_node_and_cure():
    fine = Pass("cpu", "fp32", 6.0, 1e-7, 0.1)
    card = GOOD | {"gpus": [RTX_4090 | {"driver": "580.65.06"}]}
    idle = GOOD | {"torch": "2.13.0+cpu", "cuda": None, "devices": 0}
    answers = {
        "tower": answer(
            card,
            *(fine, Pass("cuda:0", "bf16", 6.0, 1e-3, 0.02, 37)),
            unsloth=UnslothPass(loss=5.6, seconds=9.2),
        ),
        "laptop": answer(BARE | {"cards": 1}, fine),
        "oldbox": answer(idle, fine),
        "attic": answer(GOOD, Pass("cuda:0", "fp32", error="no kernel image is available")),
        "busy": {"facts": {}, "findings": ["run 'evening' is under way"]},
        "off": {},
        "mute": {},
    }
    gone = dict.fromkeys(answers, "") | {"off": "cannot be reached"}
    lines, levels = show_single(answers, gone, {"oldbox": "cpu"})
    troubled = dict.fromkeys(("laptop", "attic", "busy", "off", "mute"), "fault")
    assert levels == {"tower": "good", "oldbox": "advice", **troubled}
    texts = [line for _, line in lines]
    assert_line(
        "\n".join(texts), "✓ tower", "RTX 4090", "580.65.06", "cpu fp32", "0.10 s", "1.0e-07"
    )
    assert_line("\n".join(texts), "cuda:0 bf16", "0.02 s", "37 MiB", "1.0e-03")
    assert_line("\n".join(texts), "Unsloth 4 bits", "9 s")
    said = " ".join(" ".join(texts).split())
    for node, *facts in (
        ("laptop", "no NVIDIA driver is loaded", "Install driver 580"),
        ("oldbox", "without CUDA", "provision.yml --tags python"),
        ("attic", "cuda:0", "no kernel image is available"),
        ("busy", "run 'evening'"),
        ("off", "cannot be reached"),
        ("mute", "-v"),
    ):
        assert_names(said.split(f" {node}: ")[1], *facts)
    assert show_single({"tower": answers["tower"]}, gone, {})[0][-1][0] == "good"
