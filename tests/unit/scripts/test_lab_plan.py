"""The plan of the lab's machines, and the arguments its command line refuses."""

from __future__ import annotations

import os
import sys
import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names, refuses
from support.programs import run
from support.repository import ROOT
from support.waiting import until

from hearth_lab import lab, plan
from hearth_lab.host import signs_of_life
from hearth_lab.plan import LabError


@given(st.integers(1, plan.MOST_NODES))
def test_no_two_machines_share_a_name_a_card_a_mac_or_an_address(count):
    nodes = plan.nodes(count)
    assert len(nodes) == count
    for what in ("name", "card", "mac", "address", "tailscale"):
        assert len({getattr(node, what) for node in nodes}) == count
    assert all(node.address != plan.ROUTER for node in nodes)
    # Linux refuses longer names; "-ts" is added to name the decoy's far end.
    assert all(len(node.card) <= 15 and len(node.name) <= 12 for node in nodes)


@pytest.mark.parametrize("count", [0, -1, plan.MOST_NODES + 1])
def test_a_number_of_machines_that_the_lab_does_not_have_is_refused(count):
    with refuses(LabError, f"--nodes {count}"):
        plan.nodes(count)


def test_long_work_of_the_lab_gives_signs_of_life_until_it_is_done():
    said = []
    with signs_of_life("building", said.append, every=0.05):
        until(lambda: len(said) > 1)
    count = len(said)
    time.sleep(0.2)
    assert len(said) == count
    assert_names(said[0], "building", " s")


def test_releases_are_taken_in_turn():
    assert plan.releases("trixie", 2) == ["trixie", "trixie"]
    assert plan.releases("bookworm,trixie", 3) == ["bookworm", "trixie", "bookworm"]


@pytest.mark.parametrize("text", ["", "13", "trixie,", "trixie bookworm", "--variant=x"])
def test_what_is_no_release_is_refused(text):
    with refuses(LabError, "--release"):
        plan.releases(text, 3)


def test_slurm_on_machines_of_two_releases_is_refused():
    with refuses(LabError, "--slurm", "bookworm,trixie"):
        lab.up(2, "bookworm,trixie", with_slurm=True)


def test_speeds_and_shares():
    assert plan.megabits("1gbit") == 1000
    assert plan.megabits("100mbit") == 100
    assert plan.megabits("200kbit") == pytest.approx(0.2)
    assert plan.cores("0.5") == 0.5
    assert plan.gib("1.5") == 1.5


@given(st.text().filter(lambda text: not text.endswith(("bit", "BIT"))))
def test_what_is_no_speed_is_refused(text):
    with refuses(LabError, "speed"):
        plan.megabits(text)


@pytest.mark.parametrize("text", ["0", "-1", "half", "nan", "inf", "0mbit", ""])
def test_what_is_no_share_or_no_memory_is_refused(text):
    with refuses(LabError, "share"):
        plan.cores(text)
    with refuses(LabError, "memory"):
        plan.gib(text)


def test_the_inventory_names_the_machines_that_come_up_by_default():
    hosts = yaml.safe_load((ROOT / "inventory" / "lab" / "hosts.yml").read_text())
    told = {name: its["cluster_address"] for name, its in hosts["cluster"]["hosts"].items()}
    assert told == {node.name: node.address for node in plan.nodes(3)}


def test_without_root_and_packages_the_lab_says_all_that_is_missing():
    code = "import os, sys; sys.argv = ['lab', 'status']; "
    if os.geteuid() == 0:
        code += "os.geteuid = lambda: 1000; "
    code += "from hearth_lab import host; host.shutil.which = lambda *_, **__: None; "
    code += "from hearth_lab.cli import main; sys.exit(main())"
    done = run(sys.executable, "-c", code, cwd=ROOT / "scripts")
    assert done.returncode == 2
    assert_names(done.stderr, "root", "sudo apt-get install", "dnsmasq-base", "systemd-container")
