"""The probe's report: made on this computer, and read as the text of a stranger."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.machines import UBUNTU, link, report

from hearth.base.nvidia import NVIDIA_SMI
from hearth_controller.discover import probe
from hearth_controller.discover.machine import facts_in, facts_of
from hearth_controller.discover.probe import MARK

SMI = "NVIDIA GeForce RTX 5070 Ti, 16303, 580.126.09, 12.0\n"


def answer(**changes):
    return MARK + json.dumps(report(**changes))


def test_the_probe_describes_this_computer_through_a_bare_python():
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-", *NVIDIA_SMI],
        input=Path(probe.__file__).read_text(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert facts_in(done.stdout) == facts_of(probe.facts(NVIDIA_SMI))


def test_the_probe_works_with_an_old_python():
    tree = ast.parse(Path(probe.__file__).read_text(), feature_version=(3, 6))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import)
                for alias in node.names}  # fmt: skip
    assert imported <= sys.stdlib_module_names


def test_the_probe_opens_files_for_reading_only():
    calls = [
        node
        for node in ast.walk(ast.parse(Path(probe.__file__).read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "open"
    ]
    assert calls
    assert all(len(call.args) == 1 for call in calls)


def test_gpus_come_from_the_driver_else_from_the_bus():
    driven = facts_of(report(gpus=SMI * 2, cards=["2c05", "2c05"]))
    assert (driven.gpu, driven.driver) == ("2× RTX 5070 Ti 16 GB", "580.126.09")
    bare = facts_of(report(cards=["2c05"]))
    assert (bare.gpu, bare.driver) == ("RTX 5070 Ti", "")
    assert facts_of(report()).gpu == ""


def test_the_system_has_a_short_name():
    assert facts_of(report(release=UBUNTU)).system == "Ubuntu 24.04"
    assert facts_of(report(release="")).system == "?"


@pytest.mark.parametrize(
    ("groups", "root", "sudo"),
    [(["lab"], False, False), (["wheel"], False, True), ([], True, True)],
)
def test_sudo_needs_a_group_or_root(groups, root, sudo):
    assert facts_of(report(groups=groups, root=root)).sudo is sudo


def test_what_a_login_shell_prints_does_not_hide_the_report():
    facts = facts_in(f"Welcome!\n{answer(hostname='tower')}\nBye")
    assert facts.hostname == "tower"


def test_no_text_of_a_stranger_commands_the_terminal():
    facts = facts_in(
        answer(hostname="to\x1b[31mwer\x07\nx", user="l\rab", gpus="\x1b]0;x\x07" + SMI)
    )
    assert facts.hostname == "towerx"
    assert facts.user == "lab"
    assert "\x1b" not in facts.gpu


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.sampled_from(sorted(report())), json_values)
def test_a_malformed_report_is_no_facts_and_no_error(name, value):
    facts_in(MARK + json.dumps(report() | {name: value}))


@given(st.text() | json_values.map(json.dumps))
def test_any_other_answer_is_no_facts(text):
    assert facts_in(text) is None
    assert facts_in(MARK + text) is None


def test_a_nic_with_an_impossible_address_is_malformed():
    assert facts_in(answer(links=[link("enp5s0", "192.168.1.40/24")])) is not None
    assert facts_in(answer(links=[link("enp5s0", "192.168.1.400/24")])) is None
    assert facts_in(answer(links=[link("enp5s0", "192.168.1.40/99")])) is None
