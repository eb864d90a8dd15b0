"""Preflight's findings on a machine and their wording."""

from __future__ import annotations

import pytest
from ansible.module_utils.hearth_node.driver import inspect
from support.facts import assert_names
from support.modules import call
from support.plugins import load

action = load("action", "hearth_preflight")
module = load("modules", "hearth_preflight")

UBUNTU = 'PRETTY_NAME="Ubuntu 24.04.1 LTS"\nID=ubuntu\nVERSION_ID="24.04"\nID_LIKE=debian\n'


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (UBUNTU, True),
        (UBUNTU.replace("24.04", "22.04"), True),
        (UBUNTU.replace("24.04", "26.04"), True),
        (UBUNTU.replace("24.04", "20.04"), False),
        ('ID=debian\nVERSION_ID="12"', True),
        ("ID=debian\nVERSION_ID=13", True),
        ('ID=debian\nVERSION_ID="11"', False),
        ("ID=debian", False),
        ('ID=linuxmint\nVERSION_ID="22"\nPRETTY_NAME="Linux Mint 22"', False),
        ("", False),
    ],
)
def test_systems_that_hearth_knows(tmp_path, text, known):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "os-release").write_text(text)
    said = module.unknown_os(inspect.system(str(tmp_path)))
    assert bool(said) != known
    if "Mint" in text:
        assert_names(said, "Linux Mint 22", "Debian 12 and 13", "22.04, 24.04 and 26.04")
        assert "preflight_other_os" in said


def test_a_machine_that_does_not_fit_is_told_why():
    assert module.unknown_architecture("x86_64") == module.unknown_architecture("aarch64") == ""
    assert_names(module.unknown_architecture("i686"), "i686", "x86_64", "aarch64")
    assert module.old_python("3.10.12") == ""
    assert_names(module.old_python("3.8.10"), "3.8.10")
    assert module.too_full("/home", 6.0, 6, "for x") == ""
    full = module.too_full("/home", 3.24, 6, "for x")
    assert_names(full, "3.2 GB are free in /home", "6 GB are needed", "for x")


def test_a_look_at_this_computer(tmp_path):
    """Everything at once: the disk is asked for more than there is."""
    answer = call(
        "hearth_preflight",
        address="127.0.0.1",
        peers={"gone": "127.0.0.1"},
        workspace=f"{tmp_path}/not/there/yet",
        python=f"{tmp_path}/env/bin/python",
        lock="gpu",
        disk_gb=10_000_000,
        other_os=True,
        index="host.invalid",
    )
    assert not answer["changed"]
    assert_names("\n".join(answer["findings"]), "10000000 GB", tmp_path)
    facts = answer["facts"]
    assert facts["has_address"]
    assert not facts["index"]
    assert facts["free_gb"] > 0
    assert not (tmp_path / "not").exists()


def test_an_environment_that_is_there_needs_no_room_for_another(tmp_path):
    python = tmp_path / "python"
    python.touch()
    given = {"python": str(python), "workspace": str(tmp_path), "lock": "auto", "disk_gb": 10**9}
    assert not any("environment" in said for said in module.rooms(given, False))


def test_a_limit_on_power_is_compared_with_the_cards_if_the_driver_is_there(program):
    program("nvidia-smi", "echo '0, Card, 300.00, 300.00, 150.00, 330.00, Disabled'")
    assert module.limits(0) == module.limits(220) == []
    (finding,) = module.limits(400)
    assert_names(finding, "power_limit: 400", "150 to 330 W")
    program("nvidia-smi", "exit 9")
    assert module.limits(400) == []


def test_a_line_about_a_machine_names_the_peers_that_it_does_not_reach():
    machine = {"os": "Ubuntu 24.04.1 LTS", "python": "3.12.3", "free_gb": 412, "nvidia": True}
    machine["compiler"] = True
    facts = {**machine, "has_address": False, "index": True, "peers": ["laptop"]}
    said = action.summary(facts, "10.0.0.1", ["laptop", "oldbox"])
    assert_names(said, "Ubuntu 24.04.1 LTS", "Python 3.12.3", "412 GB", "NVIDIA", "index")
    assert_names(said, "does not have 10.0.0.1", "no answer from oldbox")
    assert "laptop" not in said
    assert "compiler" not in said
    without = action.summary(facts | {"compiler": False}, "10.0.0.1", [])
    assert_names(without, "no C compiler")
    assert "no answer" not in action.summary(facts, "10.0.0.1", ["laptop"])
