"""The packages that nodes lack: the messages on them, and the downloads."""

from __future__ import annotations

import pytest
from support.facts import assert_names
from support.stand_in_index import lock_line

from hearth_controller.supply.extra import ExtraLock
from hearth_controller.supply.locks import read_lock
from hearth_controller.supply.missing import by_kind, drift, unsupported, wanted


def differ(*triples: tuple[str, str, str]) -> list[dict[str, str]]:
    return [{"name": name, "has": has, "wants": wants} for name, has, wants in triples]


@pytest.mark.parametrize(
    ("present", "triples", "facts"),
    [
        (True, [("numpy", "1.26.4", "2.3.1")], ["numpy 1.26.4", "2.3.1"]),
        (True, [("a", "1", "2"), ("b", "", "1")], ["a 1 instead of 2", "b missing"]),
        (True, [(f"p{i}", "", "1") for i in range(9)], ["9 packages missing"]),
        (True, [(f"p{i}", "1", "2") for i in range(7)], ["p0 1", "p4 1 instead of 2", "2 more"]),
        (False, [("a", "1", "2"), ("b", "", "1")], ["2 packages"]),
    ],
)
def test_a_drift_is_told_in_one_line(present, triples, facts):
    said = drift({"present": present, "differing": differ(*triples)}, "mended")
    assert_names(said, *facts, "mended")
    assert "\n" not in said
    assert "p5" not in said


def test_a_build_that_the_lock_does_not_have_for_a_node_is_told_with_the_way_out():
    pins = read_lock(lock_line("torch", "2.0+cpu", b"x") + lock_line("numpy", "1", b"y"))
    wrong = differ(("torch", "", "2.0+cpu"), ("numpy", "", "1"))

    def found(python: tuple[int, int], machine: str) -> list[str]:
        target = {"python": python, "machine": machine, "glibc": 36}
        return unsupported({"kind": "cpu", "target": target, "differing": wrong}, pins)

    assert found((3, 11), "x86_64") == found((3, 12), "aarch64") == []
    for minor, machine, way_out in ((15, "x86_64", "python_mode: conda"), (11, "arm", "leave")):
        (finding,) = found((3, minor), machine)
        assert_names(finding, "torch==2.0+cpu", "3.11 to 3.14", "x86_64 and aarch64", way_out)
        assert_names(finding, f"is Python 3.{minor} on {machine}")


def test_nodes_of_a_kind_share_a_download_and_those_that_differ_in_nothing_cause_none(tmp_path):
    cpu = lock_line("torch", "2+cpu", b"x") + lock_line("a", "1", b"a")
    (tmp_path / "cpu.lock").write_text(cpu)
    (tmp_path / "gpu.lock").write_text(lock_line("torch", "2", b"y"))
    target = {"python": [3, 11], "machine": "x86_64", "glibc": 36}
    looks = {
        name: {"kind": kind, "target": target, "differing": differ(*triples)}
        for name, kind, triples in (
            ("tower", "gpu", [("torch", "", "2")]),
            ("laptop", "cpu", [("torch", "", "2+cpu")]),
            ("oldbox", "cpu", [("a", "", "1")]),
            ("shelf", "cpu", []),
        )
    }
    lacking = wanted(looks, tmp_path, ExtraLock(tmp_path / "python_extra.lock"))
    assert {name: [str(pin) for pin in pins] for name, pins in lacking.items()} == {
        "tower": ["torch==2"],
        "laptop": ["torch==2+cpu"],
        "oldbox": ["a==1"],
    }
    groups = by_kind(looks, lacking)
    assert {kind[0]: [str(pin) for pin in pins] for kind, pins in groups.items()} == {
        "gpu": ["torch==2"],
        "cpu": ["torch==2+cpu", "a==1"],
    }
