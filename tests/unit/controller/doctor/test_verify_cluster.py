"""The verdict of verifying a cluster, and its table."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.facts import assert_names
from support.nodes import CARD, facts, talk
from support.plugins import load

from hearth_controller.doctor.links import link_mbit
from hearth_controller.doctor.node import Observation
from hearth_controller.doctor.verify import Sum, judge, remarks, sum_of, table, why_no_sum

NAMES = ("tower", "laptop", "oldbox")
HEARTH = "hearth -i inventory/home"


def on_a_cpu(**changes):
    none = {"torch": "2.13.0+cpu", "cuda": None, "nccl": None, "arch": [], "devices": 0}
    return facts(**{**none, "gpus": [], "cards": 0, **changes})


@pytest.fixture
def home() -> list[Observation]:
    """Three nodes that are as they should be."""
    return [
        Observation(
            name,
            rank,
            f"192.168.1.{11 + rank}",
            facts=facts(),
            talk=talk(*(each for each in NAMES if each != name)),
        )
        for rank, name in enumerate(NAMES)
    ]


def changed(home: list[Observation], name: str, **changes) -> list[Observation]:
    return [replace(node, **changes) if node.name == name else node for node in home]


def verdicts(home, total=None, **lock):
    return judge(home, total, HEARTH, lock)


def faults(home, total=None):
    return {name: v.text for name, v in verdicts(home, total).items() if v.level == "fault"}


def test_nodes_as_they_should_be_are_green(home):
    total = Sum(facts={"nodes": list(NAMES), "wrong": [], "over": "nccl", "seconds": 0.05})
    alike = changed(home, "oldbox", facts=facts(python="3.11.2"))
    assert {v.level for v in verdicts(alike, total).values()} == {"good"}
    assert why_no_sum(home) == ""


def test_a_node_that_is_off_is_the_only_fault(home):
    off = changed(home, "laptop", gone="unreachable", facts={}, talk={})
    for node in off:
        if node.talk:
            node.talk["mbit"].pop("laptop")
            node.talk["milliseconds"].pop("laptop")
    assert faults(off) == {"laptop": "unreachable"}
    assert why_no_sum(off) == ""


def test_a_node_behind_a_firewall_is_told_not_its_callers(home):
    for node in home:
        if node.name != "laptop":
            node.talk["failed"]["laptop"] = "no answer on TCP (firewall?)"
    told = faults(home)
    assert list(told) == ["laptop"]
    assert_names(
        told["laptop"], "tower, oldbox → laptop", "TCP", f"{HEARTH} provision --tags firewall"
    )
    assert why_no_sum(home)
    home[2].talk["failed"].clear()
    assert_names(faults(home)["laptop"], "tower → laptop", "TCP")


def test_a_silent_node_whose_address_another_machine_took_is_told_before_all_else(home):
    macs = ("02:00:00:00:00:01", "02:00:00:00:00:02")
    off = changed(home, "laptop", gone="cannot be reached (Connection reset by peer)", facts={})
    for node, mac in zip((off[0], off[2]), macs, strict=True):
        own = {"addresses": {}, "macs": [], "neighbours": {"192.168.1.12": mac}}
        off = changed(off, node.name, facts=facts(network=own))
    assert_names(faults(off)["laptop"], "192.168.1.12", *macs)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"torch": "2.12.0"}, ["torch 2.12.0", "and 2.13.0", "--tags python"]),
        ({"python": "3.12.3"}, ["Python 3.12", "and 3.11", "--tags python"]),
        ({"cuda": "12.6"}, ["CUDA 12.6", "and 13.0", "--tags python"]),
        ({"nccl": "2.27.0"}, ["NCCL 2.27.0", "and 2.28.3", "--tags python"]),
        ({"gpus": []}, ["NVIDIA driver", "--tags driver"]),
        ({"devices": 0}, ["torch sees no GPU", "reboot --nodes oldbox"]),
        ({"build_packages": ["gcc"]}, ["gcc", "C compiler", "--tags python"]),
        ({"gpus": [CARD | {"capability": "6.1"}]}, ["2.13.0", "RTX 5070 Ti", "that is 6.1"]),
    ],
)
def test_a_node_that_differs_or_lacks_something_is_told_what(home, change, named):
    told = faults(changed(home, "oldbox", facts=facts(**change)))
    assert list(told) == ["oldbox"]
    assert_names(told["oldbox"], *named)


def test_added_packages_are_compared_over_the_nodes_that_have_them(home):
    for name, added in (("tower", {"rich": "15.0"}), ("laptop", {}), ("oldbox", {"rich": "14.0"})):
        home = changed(home, name, facts=facts(added=added))
    told = faults(home)
    assert list(told) == ["oldbox"]
    assert_names(told["oldbox"], "rich 14.0", "15.0", "--tags python")


def test_nvcc_is_shown_and_whether_it_suits_torch(home):
    assert not any("nvcc" in line for line in remarks(home, None, ""))
    for name, version in (("tower", "13.0"), ("laptop", "12.0")):
        home = changed(home, name, facts=facts(nvcc=version))
    (line,) = (line for line in remarks(home, None, "") if "nvcc" in line)
    assert_names(line, "tower 13.0", "laptop 12.0 (extensions of torch need 13.0)", "oldbox")


def test_of_two_that_differ_the_lower_rank_is_right(home):
    two = changed(home[:2], "tower", facts=facts(torch="2.12.0"))
    assert list(faults(two)) == ["laptop"]


def test_a_gpu_and_a_cpu_node_do_not_differ_but_are_explained(home):
    mixed = changed(home, "oldbox", facts=on_a_cpu())
    assert faults(mixed) == {}
    assert any(line.startswith("oldbox trains") for line in remarks(mixed, None, ""))


def test_only_what_must_be_mended_first_is_shown(home):
    broken = facts(torch="2.12.0", gpus=[])
    told = faults(changed(home, "laptop", facts=broken))["laptop"]
    assert "driver" in told and "2.12.0" not in told
    gone = changed(home, "laptop", findings=("no torch",), facts=broken)
    assert faults(gone)["laptop"] == "no torch"


def test_a_slow_cable_is_advice_for_the_node_that_has_it(home):
    for node in home:
        for peer in node.talk["mbit"]:
            if "laptop" in (node.name, peer):
                node.talk["mbit"][peer] = 94.1
    told = verdicts(home)
    assert [told[name].level for name in NAMES] == ["good", "advice", "good"]
    assert_names(told["laptop"].text, "94 Mbit/s", "cable", "negotiated 1000", "switch")
    old = changed(home, "laptop", facts=facts(nic_mbit=100))
    assert_names(verdicts(old)["laptop"].text, "94 Mbit/s", "Cat 5e")


def test_a_node_that_may_lock_too_little_memory_for_its_rdma_card_is_told(home):
    told = verdicts(changed(home, "laptop", facts=facts(rdma=True, lockable=8 << 20)))["laptop"]
    assert told.level == "advice"
    assert_names(told.text, "8 MiB", "RoCE", "LimitMEMLOCK=infinity", "user@.service")
    for fine in ({"rdma": False, "lockable": 8 << 20}, {"rdma": True, "lockable": None}):
        assert verdicts(changed(home, "laptop", facts=facts(**fine)))["laptop"].level == "good"


def test_a_link_is_as_fast_as_its_slower_direction(home):
    for node in home:
        if "laptop" in node.talk["mbit"]:
            node.talk["mbit"]["laptop"] = 80.0
    assert link_mbit("laptop", home) == 80.0
    assert link_mbit("tower", home) == 940.0
    assert link_mbit("tower", [replace(home[0], talk={})]) is None


def test_a_gpu_without_cuda_in_torch_is_advice_unless_the_processor_was_chosen(home):
    idle = changed(home, "laptop", facts=on_a_cpu(gpus=[CARD], cards=1))
    assert "python_lock: gpu" in verdicts(idle)["laptop"].text
    assert verdicts(idle, laptop="cpu")["laptop"].level == "good"


def test_a_sum_that_failed_or_was_wrong_is_a_fault_of_the_node_that_had_it(home):
    told = faults(home, Sum(culprit="oldbox", failure="broke off"))
    assert list(told) == ["oldbox"]
    assert_names(told["oldbox"], "all-reduce", "broke off")
    wrong = Sum(facts={"nodes": list(NAMES), "wrong": ["tower"], "over": "gloo", "seconds": 1})
    assert list(faults(home, wrong)) == ["tower"]
    nobody = Sum(failure="endless")
    assert faults(home, nobody) == {}
    assert "all-reduce: endless" in remarks(home, nobody, "")


BROKE = {"facts": {"culprit": "oldbox"}, "findings": ["broke off"]}


@pytest.mark.parametrize(
    ("answers", "total"),
    [
        ([{}, {"skipped": True}], None),
        ([{}, {"facts": {}}, {"facts": {"wrong": []}}], Sum(facts={"wrong": []})),
        ([{}, {"facts": {}}, BROKE], Sum(culprit="oldbox", failure="broke off")),
    ],
)
def test_the_sum_is_that_of_the_nodes_that_tried_it(answers, total):
    assert sum_of(answers) == total


def test_no_sum_while_a_run_is_under_way(home):
    busy = changed(home, "tower", facts=facts(busy="evening"))
    assert_names(why_no_sum(busy), "run evening")
    assert_names(why_no_sum(home[:1]), "two nodes")


def test_the_table_has_a_line_a_node_and_fits(home):
    slow = changed(home, "laptop", gone="unreachable: off?", facts={}, talk={})
    lines = table(slow, verdicts(slow), 110)
    heading, *rows = [text for _, text in lines]
    assert " ".join(heading.split()) == "node rank address NIC link GPU memory driver torch"
    assert " ".join(rows[0].split()) == (
        "✓ tower 0 192.168.1.11 enp5s0 940 Mbit/s RTX 5070 Ti 16 GB 580.126.09 2.13.0"
    )
    assert rows[1].split()[:4] == ["✗", "laptop", "1", "192.168.1.12"]
    assert rows[3] == "laptop: unreachable: off?"
    assert max(len(text) for _, text in lines) <= 110


def test_a_gpu_without_memory_of_its_own_is_told_as_such(home):
    spark = changed(home, "laptop", facts=facts(gpus=[CARD | {"memory_mib": None}]))
    lines = [text.split() for _, text in table(spark, verdicts(spark), 110)]
    assert "shared" in next(line for line in lines if "laptop" in line)


def test_in_80_columns_the_machines_stand_below_the_network(home):
    lines = [text for _, text in table(home, verdicts(home), 78)]
    assert max(map(len, lines)) <= 78
    assert sum("tower" in line for line in lines) == 2


def test_a_node_that_cannot_be_tested_with_the_others_is_skipped_and_unchanged(tmp_path):
    nodes = [{"name": "desk", "rank": 0, "address": "10.0.0.1"}]
    given = {"verb": "talk", "nodes": nodes, "workspace": str(tmp_path), "python": "python"}
    task = SimpleNamespace(args=given, async_val=0, check_mode=False)
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=""))
    known = {"inventory_hostname": "desk", "hostvars": {"desk": {}}, "ansible_play_hosts": ["desk"]}
    plugin = load("action", "hearth_verify").ActionModule(task, connection, *[None] * 3)
    assert plugin.run(task_vars=known) == {"changed": False, "skipped": True}
