"""The last stage of provisioning on real machines: its screen when all is well, and when not."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cached_model import ID, NAME, make_cached
from support.facts import assert_line, assert_names
from support.lab import READY, Controller, as_root, bring, inside, lab, machines, on

from hearth_lab import plan

pytestmark = [pytest.mark.lab, pytest.mark.rotated("the last stage alone, and doctor")]

# Of a model: one file, which is another on oldbox, and its checksum as it came.
MODEL = """\
import hashlib, json, os, sys
text = b"{}" if sys.argv[1] != "oldbox" else b"[]"
with open("config.json", "wb") as file:
    file.write(text)
status = os.stat("config.json")
record = {
    "sha256": hashlib.sha256(text).hexdigest(),
    "size": status.st_size,
    "mtime_ns": status.st_mtime_ns,
}
with open("hearth.json", "w") as file:
    json.dump({"id": "tiny", "files": {"config.json": record}}, file)
"""
CARDS = {"tower": "enp5s0", "laptop": "wlp0s20f3", "oldbox": "eno1"}


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Iterator[Controller]:
    """A controller, and three machines with driver, environment and workspace."""
    controller = Controller(tmp_path_factory.mktemp("home"))
    with machines():
        stages = [
            f"playbooks/provision/{stage}.yml" for stage in ("preflight", "driver", "workspace")
        ]
        controller.play(*stages, *READY)
        yield controller


def verify(home: Controller, *arguments: str, status: int | None = 0) -> str:
    return home.play("playbooks/verify.yml", *READY, *arguments, status=status)


def line_of(screen: str, node: str) -> list[str]:
    """Return the words of a node's line in the table, the mark first."""
    words = (line.split() for line in screen.splitlines())
    return next(line for line in words if len(line) > 5 and line[1] == node)


def test_three_nodes_are_verified_by_a_real_sum_and_no_file_of_it_stays(home):
    screen = verify(home)
    assert_line(screen, "all-reduce", "3 ranks", "right")
    assert_line(screen, "3 nodes", "verified")
    assert "laptop changed=0 · oldbox changed=0 · tower changed=0" in screen
    for rank, (node, card) in enumerate(CARDS.items()):
        address = f"198.51.100.{11 + rank}"
        assert line_of(screen, node)[2:5] == [str(rank), address, card]
        assert line_of(screen, node)[6] in ("Mbit/s", "Gbit/s")
        left = "ls ai-cluster/results ai-cluster/logs ai-cluster/config | grep -c verify || true"
        assert on(node, left) == "0"


def test_the_token_is_not_shown_however_much_is(home):
    screen = verify(home, "-vvv", "-e", "_verify_token=secret-of-this-test-only")
    assert "secret-of-this" not in screen


def test_a_slow_cable_is_measured_and_costs_nobody_the_verdict(home):
    lab("link", "oldbox", "100mbit")
    try:
        screen = verify(home, "-e", "_verify_sum=off")
    finally:
        lab("link", "oldbox", "off")
    assert line_of(screen, "oldbox")[0] == "!"
    assert 50 < int(line_of(screen, "oldbox")[5]) < 115
    assert "oldbox: " in screen
    assert_line(screen, "Mbit/s", "cable")


def test_doctor_finds_what_is_wrong_and_mends_what_is_safe(home, tmp_path):
    for node in CARDS:
        lay = f"mkdir -p ai-cluster/models/tiny && cd ai-cluster/models/tiny && python3 - {node}"
        on(node, lay, given=MODEL.encode())
    forgotten = on(
        "laptop",
        "mkdir -p ai-cluster/logs/.evening.torchrun; "
        "HEARTH_SUPERVISED=$HOME/ai-cluster nohup sleep 3600 </dev/null >/dev/null 2>&1 & echo $!",
    )
    lab("link", "oldbox", "100mbit")
    file = tmp_path / "doctor.json"
    given = ("-e", "hearth_models=", "-e", "fix=on")
    try:
        screen = home.play("playbooks/doctor.yml", *READY, *given, HEARTH_ANSWER=str(file))
    finally:
        lab("link", "oldbox", "off")
        on("laptop", f"kill {forgotten}")
    seen = json.loads(file.read_text())["facts"]
    assert seen["verdict"] == "broken"
    its = {(each["node"], each["check"]): each for each in seen["checks"]}
    for node, check, outcome, fact in (
        ("oldbox", "link", "broken", "eno1"),
        ("oldbox", "models", "broken", "tiny"),
        ("laptop", "orphans", "degraded", f"process {forgotten}"),
    ):
        assert (its[node, check]["outcome"], its[node, check]["fix"] != "") == (outcome, True)
        assert_names(its[node, check]["seen"], fact)
    for node in CARDS:
        for check in ("login", "driver", "address", "reach", "identity", "code"):
            assert its[node, check]["outcome"] == "good", (node, its[node, check])
        # Nobody had provisioned these: the first look named them, the stages mended them.
        for check in ("names", "NCCL", "sleep", "leftovers"):
            assert its[node, check]["outcome"] == "good", (node, its[node, check])
        assert {"names", "nccl", "power"} <= {*seen["mended"][node]}
    assert "leftovers" in seen["mended"]["laptop"]
    assert_line(screen, "! tower, laptop, oldbox", "sleep")
    assert on("laptop", "ls -A ai-cluster/logs") == ""


def test_a_pair_that_does_not_reach_each_other_is_named(home):
    route = "ip route {} unreachable 198.51.100.11/32"
    as_root("laptop", route.format("add"))
    try:
        screen = verify(home, status=2)
    finally:
        as_root("laptop", route.format("del"))
    assert_line(screen, "tower → laptop", "TCP")
    assert_line(screen, "laptop → tower", "no way")
    assert line_of(screen, "oldbox")[0] in "✓!"
    assert_line(screen, "all-reduce", "not tried")
    assert_line(screen, "laptop, tower", "not verified")


def test_two_machines_with_one_address_are_both_named(home):
    macs = [each.mac for each in plan.nodes(3)[1:]]
    as_root("oldbox", "ip address add 198.51.100.12/24 dev eno1")
    try:
        assert_line(
            home.play("playbooks/provision/preflight.yml", status=2), "198.51.100.12", *macs
        )
        assert_line(verify(home, status=2), "laptop", "198.51.100.12", *macs)
        screen = home.play("playbooks/doctor.yml", *READY)
        assert_line(screen, "laptop: duplicate", *macs)
    finally:
        as_root("oldbox", "ip address del 198.51.100.12/24 dev eno1")


def test_a_firewall_that_drops_new_connections_is_named_before_a_run_starts(home, tmp_path):
    (tmp_path / "train.py").touch()
    as_root("tower", "iptables -A INPUT -p tcp --syn --dport 1024:65535 -j DROP")
    try:
        screen = home.play("train.yml", *READY, "-e", f"script={tmp_path}/train.py", status=2)
        firewall = home.play("playbooks/provision/firewall.yml", *READY, status=2)
        doctor = home.play("playbooks/doctor.yml", *READY)
    finally:
        as_root("tower", "iptables -F INPUT")
    assert_line(screen, "tower: laptop, oldbox", "port", "198.51.100.11")
    assert "198.51.100.12, 198.51.100.13" in screen
    assert_line(firewall, "nft insert rule ip filter INPUT", "198.51.100.12, 198.51.100.13")
    assert_line(doctor, "tower: firewall", "(ip filter INPUT)")


@pytest.fixture
def models(home) -> Iterator[Path]:
    """A model cache with 24 MB on the laptop; on the others there is none yet."""
    # Not below /tmp, which a machine has for itself.
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="hearth-test-"))
    make_cached(folder / "models", 24 << 20)
    bring(folder, ["laptop"])
    shutil.rmtree(folder)
    for node in ("tower", "oldbox"):
        as_root(node, f"install -d -o lab {folder} {folder}/models")
    yield folder / "models"
    for node in CARDS:
        inside(node, f"umount {folder}/models; rm -r {folder}")


def test_a_model_goes_from_node_to_node_once_all_have_room_for_it(home, models):
    words = ("-e", f"model={ID}", "-e", f"hearth_models={models}")
    as_root("oldbox", f"mount -t tmpfs -o size=20m,mode=1777 tmpfs {models}")
    screen = home.play("playbooks/distribute.yml", *READY, *words, status=2)
    assert_line(screen, "oldbox", "no room")
    assert on("tower", f"ls -A {models}") == ""
    as_root("oldbox", f"umount {models}")

    screen = home.play("playbooks/distribute.yml", *READY, *words)
    assert f"{NAME}: laptop → tower → oldbox" in screen
    sums = {on(node, f"sha256sum {models}/{NAME}/model.safetensors") for node in CARDS}
    assert len(sums) == 1

    screen = home.play("playbooks/distribute.yml", *READY, *words)
    assert "laptop changed=0 · oldbox changed=0 · tower changed=0" in screen


def test_a_node_that_is_off_is_named_and_the_others_are_verified(home, tmp_path):
    lab("power-off", "oldbox")
    anew = ("-e", f"ansible_control_path_dir={tmp_path}", "-T", "5")  # not over an open connection
    try:
        screen = verify(home, *anew, status=None)
    finally:
        lab("power-on", "oldbox")
    assert line_of(screen, "oldbox")[0] == "✗"
    assert_line(screen, "oldbox", "reached")
    assert line_of(screen, "tower")[0] in "✓!"
    assert_line(screen, "all-reduce", "2 ranks", "right")
