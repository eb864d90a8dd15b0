"""Doctor: each check's good and bad cases, the verdict, the table and the JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from support.facts import assert_names
from support.metric_lines import slow_links
from support.nodes import facts, talk
from support.programs import run
from support.repository import ROOT

from hearth_controller.base.verdict import EXIT
from hearth_controller.doctor import software
from hearth_controller.doctor.examine import CHECKS, examine, mends, node_of, show, warnings
from hearth_controller.doctor.finding import not_checked
from hearth_controller.doctor.node import ExaminedNode, NodeGroup, Observation
from hearth_controller.doctor.table import doctor_lines
from hearth_controller.doctor.verify import observations

SCHEMA = json.loads((ROOT / "docs" / "doctor.schema.json").read_text())
NOW = "2026-11-22T07:00:00+00:00"
ADDRESSES = {"tower": "192.0.2.1", "laptop": "192.0.2.2", "oldbox": "192.0.2.3"}
MACS = {name: f"02:00:00:00:00:0{rank}" for rank, name in enumerate(ADDRESSES, 1)}
ELSE = "02:00:00:00:00:99"
GPU = {
    "index": 0,
    "used_mib": 600,
    "total_mib": 16303,
    "room_mib": 15303,
    "watts_limit": 285,
    "watts_default": 285,
    "programs": [{"pid": 900, "name": "gnome-shell", "mib": 400, "computes": False}],
    "ours_mib": 0,
}
GAME = {"pid": 4242, "name": "game.exe", "mib": 6200, "computes": False}
BOBS = {"user": "bob", "run": "evening", "since": 1.8e9, "processors": 3.9, "gpus": [0, 1]}
DRIVER = {
    "cards": ["2c05"],
    "works": True,
    "restart": "",
    "loaded": "580.126.09",
    "modules": "open",
    "answers": True,
    "secure_boot": False,
    "next_boot": "",
    "remedy": "",
    "next_kernel": "6.14.0-37-generic",
    "lockout": "",
    "lockout_remedy": "",
    "signer": "",
    "signer_enrolled": False,
    "prime_off": False,
    "system": {"id": "ubuntu"},
}
LOST = {
    "lockout": "kernel 6.8.0-149-generic has no driver for enp5s0 (r8169)",
    "lockout_remedy": "sudo apt-get install linux-modules-extra-6.8.0-149-generic",
}
TINY = {"fingerprint": "aa", "changed": []}
OTHER_TINY = TINY | {"fingerprint": "bb"}


def network(name: str, **neighbours: str) -> dict:
    """Return the view of a node that reaches these nodes at other MACs."""
    seen = {ADDRESSES[other]: (MACS | neighbours)[other] for other in ADDRESSES if other != name}
    return {
        "addresses": {ADDRESSES[name]: MACS[name]},
        "macs": [MACS[name]],
        "neighbours": seen,
    }


def inspection_of(name: str) -> dict:
    others = {other: address for other, address in ADDRESSES.items() if other != name}
    return {
        "on_battery": None,
        "gpus": [GPU],
        "gpu_trouble": "",
        "driver": DRIVER,
        "card": {"name": "enp5s0", "mtu": 1500},
        "network": network(name),
        "paths": {other: {"full": True, "small": True, "mtu": None} for other in others},
        "disks": [{"folder": "/home", "free_mib": 90_000}],
        "memory": {"used_mib": 3000, "total_mib": 32_000},
        "identity": {"machine_id": f"id-{name}", "host_keys": [f"ssh-ed25519 {name}"]},
        "busy": "",
        "orphans": [],
        "leftovers": [],
        "models": {"tiny": TINY},
        "data": ["0123456789ab-words.jsonl"],
        "damaged": [],
        "hub_data": ["owner--rows.parquet"],
        "hub_sums": {"owner--rows.parquet": "ab" * 32},
        "unread": [],
    }


NO_ROWS = {"hub_data": [], "hub_sums": {}}
STAGE = {"changed": False}
STAGES = {
    "time": STAGE | {"client": "systemd-timesyncd.service", "skew": 0.0},
    **dict.fromkeys(("names", "power", "firewall", "nccl", "power_limit"), STAGE),
}
PACKAGES = {"present": True, "kind": "gpu", "differing": [], "findings": []}
ABSENT = PACKAGES | {"present": False}
CODE = {"changed": False, "prepared": True, "differing": [], "findings": []}


def node(name: str) -> ExaminedNode:
    rank = list(ADDRESSES).index(name)
    measured = talk(*(other for other in ADDRESSES if other != name))
    return ExaminedNode(
        verify=Observation(name, rank, ADDRESSES[name], facts=facts(), talk=measured),
        inspection=inspection_of(name),
        packages=PACKAGES,
        code=CODE,
        stages=STAGES,
        claims={"claimants": {}},
    )


def well() -> dict[str, ExaminedNode]:
    """Return three nodes without a fault."""
    return {name: node(name) for name in ADDRESSES}


def known(its: ExaminedNode, look=(), facts=(), talk=(), **changes) -> ExaminedNode:
    """Return a node with another fact."""
    its = replace(its, **changes)
    answers = {"facts": its.facts | dict(facts), "talk": its.verify.talk | dict(talk)}
    inspection = its.inspection | dict(look)
    return replace(its, inspection=inspection, verify=replace(its.verify, **answers))


def another(*names: str, **changes) -> dict[str, ExaminedNode]:
    """Return the nodes, where something else is known of these, or of the laptop."""
    chosen = names or ["laptop"]
    return {name: known(its, **changes) if name in chosen else its for name, its in well().items()}


def looks(**changes) -> dict[str, ExaminedNode]:
    return another(look=changes)


def says(**changes) -> dict[str, ExaminedNode]:
    return another(facts=changes)


def talks(mbit: float) -> dict[str, ExaminedNode]:
    """Return the nodes, where the laptop's link has this speed both ways."""
    nodes = another(talk=talk("tower", "oldbox", mbit=mbit))
    for name in ("tower", "oldbox"):
        speeds = nodes[name].verify.talk["mbit"] | {"laptop": mbit}
        nodes[name] = known(nodes[name], talk={"mbit": speeds})
    return nodes


def stage(name: str, **changes) -> dict[str, ExaminedNode]:
    """Return the nodes, where a stage would do something on the laptop."""
    return another(stages=STAGES | {name: STAGES[name] | changes})


def packages(*differing: tuple[str, str, str], **changes) -> dict[str, ExaminedNode]:
    """Return the nodes, where some packages of the laptop are not those of the lock."""
    unlike = [dict(zip(("name", "has", "wants"), each, strict=True)) for each in differing]
    return another(packages=PACKAGES | {"differing": unlike} | changes)


def driver(**changes) -> dict[str, ExaminedNode]:
    return looks(driver=DRIVER | changes)


def gpu(**changes) -> dict[str, ExaminedNode]:
    return looks(gpus=[GPU | changes])


def limited(watts: int, wanted: int, **changes) -> dict[str, ExaminedNode]:
    """Return the nodes, where the laptop's GPU and its inventory have these limits."""
    stages = STAGES | {"power_limit": STAGE | changes}
    return another(look={"gpus": [GPU | {"watts_limit": watts}]}, power_limit=wanted, stages=stages)


def free(mib: int) -> dict[str, ExaminedNode]:
    return looks(disks=[{"folder": "/srv", "free_mib": mib}])


def ping(**changes) -> dict[str, ExaminedNode]:
    """Return the nodes, where packets of the laptop reach the tower otherwise."""
    return looks(paths={"tower": {"full": False, "small": True, "mtu": None} | changes})


def observed(**changes) -> Observation:
    return Observation("laptop", 1, "192.0.2.2", **changes)


def examined(nodes: dict[str, ExaminedNode], mended=None, unmended=None) -> dict:
    """Return doctor's report, validated against the schema."""
    found = examine(NodeGroup(tuple(nodes.values())), NOW, mended or {}, unmended or {})
    Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(found)))
    return found


def found(nodes: dict[str, ExaminedNode], check: str, name: str = "laptop") -> dict:
    """Return the result of one check on one node."""
    (its,) = (
        each for each in examined(nodes)["checks"] if (each["check"], each["node"]) == (check, name)
    )
    return its


# -- the whole -------------------------------------------------------------------------------------


def test_the_schema_is_one():
    Draft202012Validator.check_schema(SCHEMA)


def test_three_nodes_with_which_nothing_is_wrong_are_good():
    seen = examined(well())
    assert (seen["verdict"], seen["reasons"]) == ("good", [])
    assert EXIT[seen["verdict"]] == 0
    assert {each["outcome"] for each in seen["checks"]} == {"good", "not applicable"}
    assert doctor_lines(seen, 118)[-1].startswith("✓ ")
    assert len(seen["pairs"]) == 6
    assert not any(mends(seen).values())


STALE = {"name": "", "mtu": None}
LIMIT = "--tags power_limit -e nodes=laptop"
BOOT = "hearth reboot --nodes laptop"
INSTALL = "--tags driver -e nodes=laptop"
NO_TORCH = observed(findings=("no torch",))
UNHEARD = {"failed": {"laptop": "no answer on TCP (firewall?)"}}
DEAF = another("tower", "oldbox", talk=UNHEARD)
CLAIMED = {"claimants": {"192.0.2.2": [ELSE]}}
HELD = {"network": network("tower")}
HELD["network"]["addresses"]["192.0.2.2"] = MACS["tower"]
OTHER = {"network": network("tower", laptop=ELSE)}
NOBODY = network("tower") | {"neighbours": {}}
ID_OF_TOWER = {"machine_id": "id-tower", "host_keys": []}
KEYS_OF_TOWER = {"machine_id": "x", "host_keys": ["ssh-ed25519 tower"]}
GAME_SEEN = ("game.exe", "GPU 0", "process 4242", "6200 MiB")
DEGRADED = [
    ("latency", another(talk={"milliseconds": {"tower": 12.0, "oldbox": 12.0}}), "12 ms"),
    ("lock file", packages(("rich", "1", "2")), "rich 1", "2", "--tags python"),
    ("torch and GPU", says(cuda=None), "python_lock: gpu", "--tags python"),
    ("code", another(code=CODE | {"differing": ["a.py"]}), "a.py", "--tags workspace"),
    ("code", another(code=CODE | {"changed": True}), "--tags workspace"),
    ("link", talks(430.0), "430 Mbit/s", "enp5s0", "1000 Mbit/s"),
    ("MTU", ping(mtu=1400), "1400 bytes to tower", "enp5s0 has 1500", "MTU of 1400"),
    ("names", stage("names", changed=True), "--tags names"),
    ("NCCL", stage("nccl", changed=True), "--tags nccl"),
    ("NCCL", stage("nccl", findings=["/etc/nccl.conf"]), "/etc/nccl.conf", "--tags nccl"),
    ("clock", stage("time", changed=True), "--tags time"),
    ("clock", stage("time", skew=61.0), "1 min 1 s", "restart systemd-timesyncd.service"),
    ("sleep", stage("power", changed=True), "--tags power"),
    ("disk", free(5000), "4.9 GB", "/srv", "hearth runs", "--delete NAME"),
    ("memory", looks(memory={"used_mib": 7000, "total_mib": 8000}), "1.0 of 7.8 GB"),
    ("identity", looks(identity=KEYS_OF_TOWER), "tower", "ssh-keygen -A"),
    ("orphans", looks(orphans=[{"pid": 77, "what": "rank"}]), "rank", "kill 77"),
    ("leftovers", looks(leftovers=["/me/x.service"]), "/me/x.service", "hearth doctor --fix"),
    ("data", looks(damaged=["01-a.jsonl"]), "01-a.jsonl", "data/01-a.jsonl"),
    ("data", looks(hub_sums={"owner--rows.parquet": "cd"}), "data/hub/owner--rows.parquet"),
    ("battery", looks(on_battery=True), "battery"),
    ("GPU shared", gpu(programs=[GAME], used_mib=6300), *GAME_SEEN),
    ("other runs", looks(other_runs=[BOBS]), "evening", "bob", "3.9 processors", "GPU 0, 1"),
    ("desktop", gpu(used_mib=2300), "2300 MiB", "GPU 0", "15303 of 16303 MiB"),
    ("driver", driver(next_boot="kernel 6.14", remedy="apt-get x"), "kernel 6.14", "apt-get x"),
    ("next kernel", driver(**LOST), *LOST.values()),
    ("Secure Boot", driver(secure_boot=True), "not signed", "update-secureboot-policy"),
    ("power limit", gpu(watts_limit=180), "GPU 0", "180 of 285 W", "nvidia-smi -i 0 -pl 285"),
    ("power limit", stage("power_limit", changed=True), "earlier", "--tags power_limit"),
    ("power limit", another(power_limit=220), "285 W, not to power_limit: 220", LIMIT),
    ("power limit", limited(180, 220), "180 of 285 W, not to power_limit: 220", LIMIT),
    ("power limit", limited(220, 220, changed=True), "unit", LIMIT),
    ("power limit", limited(285, 500, findings=["100 to 310 W"]), "100 to 310 W", LIMIT),
]
BROKEN = [
    ("reach", DEAF, "tower, oldbox", "no answer on TCP", "--tags firewall"),
    ("login", another(verify=observed(gone="no route")), "no route", "--tags preflight"),
    ("driver", driver(works=False, restart="module 570.1"), "module 570.1", BOOT),
    ("driver", driver(works=False, restart="570.1", **LOST), LOST["lockout_remedy"], BOOT),
    ("driver", driver(works=False, modules="proprietary"), "580.126.09", "proprietary", INSTALL),
    ("driver", driver(works=False, loaded="550.1"), "550.1", INSTALL),
    ("driver", driver(works=False, loaded="", answers=False), INSTALL),
    ("driver", driver(works=False, next_boot="kernel 6.14", remedy="apt-get x"), "apt-get x"),
    ("driver", driver(works=False, cards=[], prime_off=True), "prime-select on-demand"),
    ("Secure Boot", driver(secure_boot=True, loaded=""), INSTALL),
    ("Secure Boot", driver(secure_boot=True, signer="x", loaded=""), "x", "enroll-key"),
    ("torch and GPU", says(arch=["sm_80"]), "RTX 5070 Ti", "torch 2.13.0", "python_lock: cpu"),
    ("torch and GPU", says(devices=0), BOOT),
    ("torch and GPU", says(build_packages=["gcc"]), "gcc", "--tags python"),
    ("versions", says(torch="2.12.0"), "torch 2.12.0, and 2.13.0", "--tags python"),
    ("versions", another(verify=NO_TORCH), "no torch", "--tags python"),
    ("lock file", another(packages=ABSENT), "--tags python"),
    ("lock file", packages(("torch", "1", "2")), "torch 1", "2", "--tags python"),
    ("lock file", packages(("rich", "", "1"), findings=["set conda"]), "rich", "set conda"),
    ("code", another(code=CODE | {"findings": ["chown it"]}), "chown it"),
    ("address", looks(card=STALE), "192.0.2.2", "--tags network"),
    ("duplicate", another(claims=CLAIMED), ELSE, MACS["laptop"], "192.0.2.2"),
    ("duplicate", another("tower", look=HELD), MACS["tower"], MACS["laptop"], "192.0.2.2"),
    ("duplicate", another("tower", look=OTHER, talk=UNHEARD), ELSE, MACS["laptop"], "192.0.2.2"),
    ("link", talks(94.0), "94 Mbit/s", "enp5s0", "1000 Mbit/s"),
    ("MTU", ping(), "1500 bytes", "tower", "enp5s0 of laptop"),
    ("firewall", stage("firewall", changed=True), "--tags firewall"),
    ("firewall", stage("firewall", failed=True, findings=["iptables -I"]), "iptables -I"),
    ("disk", free(500), "0.5 GB", "/srv", "hearth runs"),
    ("memory", looks(memory={"used_mib": 7800, "total_mib": 8000}), "0.2 of 7.8 GB"),
    ("identity", looks(identity=ID_OF_TOWER), "tower", "systemd-machine-id-setup"),
    ("models", looks(models={"tiny": OTHER_TINY}), "tiny"),
    ("models", looks(models={"tiny": TINY | {"changed": ["a.json"]}}), "a.json", "tiny"),
]


@pytest.mark.parametrize(
    ("outcome", "check", "nodes", "facts"),
    [
        (outcome, check, nodes, facts)
        for outcome, cases in (("degraded", DEGRADED), ("broken", BROKEN))
        for check, nodes, *facts in cases
    ],
)
def test_what_is_wrong_is_named_with_its_one_fix(outcome, check, nodes, facts):
    its = found(nodes, check)
    assert its["outcome"] == outcome
    assert its["seen"]
    assert its["why"]
    assert its["fix"]
    assert_names(f"{its['seen']}\n{its['fix']}", *facts)
    seen = examined(nodes)
    assert EXIT[seen["verdict"]] == {"degraded": 1, "broken": 3}[outcome]
    assert f"laptop: {check}: {its['seen']}" in seen["reasons"]
    assert max(map(len, doctor_lines(seen, 118))) <= 160


def test_every_check_has_a_bad_case_above():
    provoked = {check for check, *_ in (*DEGRADED, *BROKEN)}
    assert provoked == {check.name for check in CHECKS}


def test_the_list_says_of_every_check_what_is_good():
    said = run(sys.executable, "-m", "hearth_controller.doctor").stdout
    lines = [line for line in said.splitlines() if not line.startswith(" ")]
    assert [line[:15].rstrip() for line in lines] == [check.name for check in CHECKS]
    assert all(check.good for check in CHECKS)


# -- what is no trouble ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "nodes", "outcome", "facts"),
    [
        ("driver", driver(cards=[]), "not applicable", ["NVIDIA"]),
        ("next kernel", driver(next_kernel=""), "not applicable", ["/boot"]),
        ("Secure Boot", driver(secure_boot=True, signer="x", signer_enrolled=True), "good", ["x"]),
        ("torch and GPU", says(gpus=[], cards=0), "not applicable", ["NVIDIA"]),
        ("torch and GPU", says(gpus=[]), "not checked", []),
        ("torch and GPU", says(arch=["compute_90"]), "good", ["RTX 5070 Ti"]),
        ("link", says(wireless=True, nic_mbit=None), "good", ["940 Mbit/s", "Wi-Fi"]),
        ("memory", looks(busy="x", memory={"used_mib": 9, "total_mib": 9}), "good", []),
        ("models", looks(models={}), "not applicable", []),
        ("models", another("oldbox", look={"models": {"tiny": OTHER_TINY}}), "good", []),
        ("data", looks(data=[], **NO_ROWS), "not applicable", []),
        ("data", looks(**NO_ROWS), "good", ["1"]),
        ("battery", looks(on_battery=False), "good", []),
        ("power limit", gpu(watts_limit=None), "not checked", []),
        ("power limit", gpu(watts_limit=270), "good", ["270 of 285 W"]),
        ("power limit", limited(220, 220), "good", ["220 of 285 W"]),
        ("GPU shared", looks(gpus=[], gpu_trouble="no nvidia-smi"), "not applicable", []),
        ("GPU shared", looks(gpus=[], gpu_trouble="fails"), "not checked", ["fails"]),
        ("GPU shared", gpu(programs=[GAME | {"in_run": True}], used_mib=6300), "good", []),
        ("other runs", looks(other_runs=None), "not checked", ["hidepid"]),
        ("MTU", looks(paths={}), "not checked", ["ping"]),
        ("MTU", ping(small=False), "not checked", ["ping"]),
        ("names", another(rootless="sudo asks", stages={}), "not checked", ["sudo asks"]),
        ("firewall", stage("firewall", failed=True, msg="no nft"), "not checked", ["no nft"]),
        ("firewall", DEAF, "not checked", ["tower, oldbox", "no answer on TCP"]),
        ("versions", another(verify=NO_TORCH, packages=ABSENT), "not checked", ["no torch"]),
        ("lock file", another(packages={}), "not checked", []),
    ],
)
def test_what_cannot_be_checked_or_does_not_apply_is_never_a_silent_good(
    check, nodes, outcome, facts
):
    its = found(nodes, check)
    assert its["outcome"] == outcome
    assert_names(its["seen"], *facts)
    assert not its["fix"]


def test_a_link_that_holds_up_a_run_is_named_at_its_two_ends_while_none_is_measured():
    slow = slow_links(("laptop", "oldbox"))
    nodes = another(*ADDRESSES, look={"busy": "evening", "slow_links": slow}, talk={"mbit": {}})
    assert found(nodes, "link", "tower")["outcome"] == "not checked"
    for end in ("laptop", "oldbox"):
        its = found(nodes, "link", end)
        assert its["outcome"] == "degraded"
        assert_names(its["seen"], "laptop → oldbox", "5.0 Mbit/s", "940", "evening")
        assert_names(f"{its['why']} {its['fix']}", "95%", "sync_every=16", "640 tokens/s")
    for junk in ({}, {"part": "x"}, {**slow, "hops": [["laptop"]]}):
        nodes = another(*ADDRESSES, look={"busy": "evening", "slow_links": junk}, talk={"mbit": {}})
        assert found(nodes, "link")["outcome"] == "not checked"


def test_a_slow_wi_fi_is_degraded_and_no_fault_of_the_others():
    nodes = talks(94.0)
    nodes["laptop"] = known(nodes["laptop"], facts={"wireless": True, "nic_mbit": None})
    assert found(nodes, "link")["outcome"] == "degraded"
    assert found(nodes, "link", "tower")["outcome"] == "good"


@pytest.mark.parametrize(
    ("peer", "mbit", "outcome"),
    [
        ({"wireless": True, "nic_mbit": None}, 150.0, "good"),
        ({"nic_mbit": 100}, 94.0, "good"),
        ({"nic_mbit": 1000}, 94.0, "broken"),
        ({"nic_mbit": None}, 94.0, "broken"),
        ({"nic_mbit": 1000}, 941.0, "good"),
        ({"nic_mbit": 2500}, 941.0, "degraded"),
    ],
)
def test_of_two_nodes_the_one_whose_own_link_is_slow_is_named(peer, mbit, outcome):
    tower = known(node("tower"), facts={"nic_mbit": 2500}, talk=talk("laptop", mbit=mbit))
    laptop = known(node("laptop"), facts=peer, talk=talk("tower", mbit=mbit))
    assert found({"tower": tower, "laptop": laptop}, "link", "tower")["outcome"] == outcome


def test_without_root_the_other_nodes_still_know_who_answers_at_an_address():
    assert found(another(claims={}), "duplicate")["outcome"] == "good"
    nodes = another(*ADDRESSES, look={"network": NOBODY}, claims={}, rootless="sudo asks")
    assert found(nodes, "duplicate")["seen"] == "sudo asks"


def test_other_nodes_that_reach_an_address_at_two_machines_tell_why_a_node_is_silent():
    nodes = well()
    silent = nodes["laptop"] = replace(nodes["laptop"], inspection={}, claims={})
    nodes["laptop"] = replace(silent, verify=replace(silent.verify, gone="connection reset"))
    assert found(nodes, "duplicate")["outcome"] == "not checked"
    nodes["oldbox"] = known(nodes["oldbox"], look={"network": network("oldbox", laptop=ELSE)})
    its = found(nodes, "duplicate")
    assert its["outcome"] == "broken"
    assert_names(its["seen"], MACS["laptop"], ELSE, "192.0.2.2")


def test_the_mac_of_a_repeater_is_no_other_machine():
    nodes = another("tower", look={"network": network("tower", laptop=ELSE)})
    assert found(nodes, "duplicate")["outcome"] == "good"


def test_no_speed_is_measured_under_a_run_and_that_is_said():
    nodes = another(*ADDRESSES, talk={"mbit": {}})
    nodes["tower"] = known(nodes["tower"], look={"busy": "evening"})
    its = found(nodes, "link")
    assert its["outcome"] == "not checked"
    assert_names(its["seen"], "evening")


def test_a_computer_alone_is_promised_nothing_of_its_system():
    lo = {"name": "lo", "mtu": 65536}
    facts = {"interface": "lo"}
    nodes = another(*ADDRESSES, look={"card": lo}, facts=facts, alone=True, stages={}, claims={})
    seen = examined(nodes)
    assert seen["verdict"] == "good"
    unasked = {each["check"] for each in seen["checks"] if each["outcome"] == "not applicable"}
    assert unasked == {
        *("firewall", "names", "NCCL", "clock", "sleep", "identity"),
        *("duplicate", "link", "MTU", "battery"),
    }


def test_a_single_node_has_no_pairs():
    seen = examined({"tower": node("tower")})
    assert seen["pairs"] == []
    unasked = {each["check"] for each in seen["checks"] if each["outcome"] == "not applicable"}
    assert unasked >= {"link", "latency", "reach", "MTU"}


@pytest.mark.parametrize(
    ("path", "check"),
    [
        ("/home/ann/ai-cluster/data/0123456789ab-words.jsonl", software.data),
        ("/home/ann/ai-cluster/data/hub/owner--rows.parquet", software.data),
        ("/home/ann/ai-cluster/models/llama/model.safetensors", software.models),
    ],
)
def test_what_was_too_large_to_be_read_is_not_said_to_be_whole(path, check):
    nodes = looks(unread=[path])
    said = check.of(nodes["laptop"], NodeGroup(list(nodes.values())))
    assert said == not_checked(said.seen)
    assert_names(said.seen, path)


def test_a_node_without_training_code_is_not_prepared_yet_and_nothing_is_wrong_with_it():
    fresh = {"changed": True, "prepared": False, "differing": ["a.py", "b.py"]}
    nodes = another(*well(), code=CODE | fresh)
    assert examined(nodes)["verdict"] == "good"
    said = found(nodes, "code")
    assert said["outcome"] == "not checked"
    assert_names(said["seen"], "not prepared yet")


def test_a_node_that_does_not_answer_is_broken_once_and_not_checked_further():
    gone = observed(gone="cannot be reached")
    seen = examined(another(verify=gone, inspection={}, stages={}, packages={}, code={}, claims={}))
    bad = [each["check"] for each in seen["checks"] if each["outcome"] == "broken"]
    assert (seen["verdict"], bad) == ("broken", ["login"])


@given(
    st.sets(
        st.sampled_from(["inspection", "packages", "code", "stages", "claims", "facts", "talk"])
    )
)
def test_whatever_is_not_known_of_a_node_is_said_and_breaks_nothing(missing):
    nodes = well()
    its = replace(nodes["laptop"], **{part: {} for part in missing - {"facts", "talk"}})
    verify = replace(its.verify, **{part: {} for part in missing & {"facts", "talk"}})
    nodes["laptop"] = replace(its, verify=verify)
    seen = examined(nodes)
    assert seen["verdict"] == "good"
    unknown = {each["node"] for each in seen["checks"] if each["outcome"] == "not checked"}
    assert unknown == ({"laptop"} if missing - {"claims"} else set())
    assert doctor_lines(seen, 118)


# -- mending ---------------------------------------------------------------------------------------


def test_what_is_mended_is_a_stage_or_leftovers_each_once():
    drift = {"differing": [{"name": "rich", "has": "1", "wants": "2"}]}
    nodes = another(
        stages=STAGES | {"names": {"changed": True}},
        packages=PACKAGES | drift,
        facts={"torch": "2.12.0"},
        look={"leftovers": ["/x"]},
    )
    mended = ["names", "leftovers", "python"]
    assert mends(examined(nodes)) == {"tower": [], "laptop": mended, "oldbox": []}


def test_nothing_is_mended_without_root_that_needs_it_or_under_a_run():
    changed = {"time": {"changed": True}, "workspace": STAGE}
    busy = {"busy": "evening"}
    assert mends(examined(another(stages=changed)))["laptop"] == ["time"]
    assert mends(examined(another(stages=changed, rootless="sudo asks")))["laptop"] == []
    assert mends(examined(another(stages=changed, look=busy)))["laptop"] == []


def test_no_process_is_ever_ended_and_no_machine_restarted_by_mending():
    touching = {
        each["mends"] for _, nodes, *_ in (*DEGRADED, *BROKEN) for each in examined(nodes)["checks"]
    }
    assert touching == {
        *("", "python", "workspace", "names", "nccl", "time", "power", "firewall", "leftovers"),
        "power_limit",
    }


# -- table -----------------------------------------------------------------------------------------


def test_the_table_has_a_mark_a_node_and_what_is_wrong_below_it():
    lines = doctor_lines(examined(talks(94.0), {"oldbox": ["names"]}, {"laptop": ["power"]}), 118)
    assert lines[0].split() == ["check", "tower", "laptop", "oldbox", "seen"]
    (row,) = (line.split() for line in lines if line.startswith("link "))
    assert row[:4] == ["link", "✓", "✗", "✓"]
    (trouble,) = (line for line in lines if line.startswith("✗ laptop: link: "))
    assert_names(trouble, "94 Mbit/s", "enp5s0")
    assert_names(lines[lines.index(trouble) + 1], "fix", "1000 Mbit/s")
    mended, unmended = (
        next(n for n in lines if n.startswith(f"{m}mended on ")) for m in ("", "not ")
    )
    assert_names(mended, "oldbox", "names")
    assert_names(unmended, "laptop", "power")
    assert lines[-1].startswith("✗ 1 broken, 0 degraded, ")


def test_what_was_not_checked_and_what_does_not_apply_have_a_line_a_reason():
    lines = doctor_lines(examined(says(gpus=[])), 118)
    said = [line for line in lines if line.startswith(("? ", "– "))]
    checks = [(line[0], line.rpartition(": ")[2].split(" (")[0]) for line in said]
    assert checks == [("?", "torch and GPU"), ("–", "battery")]


def test_the_same_trouble_of_several_nodes_is_told_once():
    lines = doctor_lines(examined(another(*ADDRESSES, look={"on_battery": True})), 118)
    assert sum(line.startswith("! tower, laptop, oldbox: battery: ") for line in lines) == 1


# -- what a launch says ----------------------------------------------------------------------------


def test_a_run_is_warned_of_what_the_home_does_and_of_nothing_else():
    bare = looks(gpus=[], gpu_trouble="no nvidia-smi")["laptop"]
    assert warnings(node("laptop")) == warnings(bare) == []
    troubled = looks(
        on_battery=True,
        gpus=[GPU | {"programs": [GAME], "used_mib": 8800, "watts_limit": 180}],
        orphans=[{"pid": 7, "what": "rank"}],
        other_runs=[BOBS],
    )
    said = warnings(troubled["laptop"])
    assert len(said) == sum(check.home for check in CHECKS)
    assert_names("\n".join(said), "battery", "bob", *GAME_SEEN, "2600 MiB", "180 of 285")


# -- what the controller makes of answers ----------------------------------------------------------

SEEN = observed()


def test_an_answer_that_did_not_come_is_not_taken_for_a_good_one():
    its = node_of(
        SEEN,
        {
            "root": {"failed": True, "msg": "Task failed: Missing sudo password"},
            "rooted": {"skipped": True, "changed": False},
            "claims": {"skipped": True, "changed": False},
            "plain": {"stages": {"workspace": {"failed": True, "changed": False}}},
            "packages": {"failed": True, "changed": False},
        },
    )
    assert_names(its.rootless, "sudo", "-K")
    assert (its.code, its.packages, its.claims, its.inspection) == ({}, {}, {}, {})
    assert its.stages.keys() == {"workspace"}
    assert (its.alone, its.over_ssh) == (False, True)


def test_only_what_was_done_is_said_to_be_mended():
    cluster = NodeGroup((ExaminedNode(Observation("tower", 0, "192.0.2.1")), ExaminedNode(SEEN)))
    said = show(cluster, {"tower": ["names"], "laptop": ["python"]}, ["tower"])["answer"]
    assert (said["mended"], said["unmended"]) == ({"tower": ["names"]}, {"laptop": ["python"]})


def test_this_computer_is_known_by_its_connection_and_its_inventory():
    its = node_of(SEEN, {}, one_computer=True, connection="local")
    assert (its.alone, its.over_ssh, its.lock) == (True, False, "auto")


def test_a_node_that_cannot_be_reached_says_why_in_words_that_help():
    look = {"unreachable": True, "msg": "Task failed: ssh: me@192.0.2.2: Permission denied (none)."}
    nodes = [{"name": "laptop", "rank": 1, "address": "192.0.2.2"}]
    (its,) = observations(nodes, {"laptop": look}, {"laptop": {}}, {"laptop"})
    assert not its.usable
    assert_names(its.gone, "me")
    assert "Task failed" not in its.gone
