"""Limits on the power of GPUs: what the cards allow, the unit, and the way back."""

from __future__ import annotations

import subprocess
from configparser import RawConfigParser

import pytest
from ansible.module_utils.hearth_node.driver import power_limit
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names

TOWER = "0, NVIDIA GeForce RTX 5070 Ti, 300.00, 300.00, 150.00, 330.00, Disabled"
SECOND = "1, NVIDIA GeForce RTX 3070 Ti, 220.00, 290.00, 100.00, 310.00, Enabled"
LAPTOP = "0, NVIDIA GeForce RTX 4070 Laptop GPU, [N/A], [N/A], [N/A], [N/A], Disabled"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580"


def cards(*lines: str) -> list[power_limit.CardLimit]:
    return power_limit.cards_of("\n".join(lines))


def test_cards_are_read_with_their_ranges_and_nothing_else_is():
    first, second = cards(TOWER, SECOND)
    assert (first.limit, first.default, first.least, first.most) == (300, 300, 150, 330)
    assert (first.persistent, second.persistent) == (False, True)
    rounded = [second.is_held_to(220 + off) for off in (0.4, -0.4, 0.6, -1)]
    assert rounded == [True, True, False, False]
    assert cards(MISMATCH) == []


def test_a_driver_that_lists_no_card_says_why(program):
    program("nvidia-smi", f"echo '{MISMATCH}'; exit 18")
    assert "mismatch" in power_limit.read_limits()[1]
    program("nvidia-smi", f"echo '{TOWER}'")
    assert power_limit.read_limits() == (cards(TOWER), "")


def test_a_value_outside_the_range_of_any_card_is_a_finding_of_that_card():
    assert power_limit.findings(220, cards(TOWER, SECOND)) == []
    (finding,) = power_limit.findings(320, cards(TOWER, SECOND))
    assert_names(finding, "power_limit: 320", "GPU 1", "RTX 3070 Ti", "100 to 310 W", "290 W")
    assert len(power_limit.findings(90, cards(TOWER, SECOND))) == 2
    (finding,) = power_limit.findings(90, cards(LAPTOP))
    assert_names(finding, "no range", "GPU 0", "Laptop", "power_limit: 0")


@given(st.integers(1, 1000) | st.sampled_from([149, 150, 330, 331]))
def test_exactly_the_values_of_a_range_are_let_pass(watts):
    assert (power_limit.findings(watts, cards(TOWER)) == []) == (150 <= watts <= 330)


def test_a_card_that_stays_as_it_was_is_named():
    assert power_limit.unmoved(220, cards(SECOND)) == []
    (finding,) = power_limit.unmoved(220, cards(TOWER))
    assert_names(finding, "GPU 0", "still held to 300 W", "firmware", "power_limit: 0")
    assert_names(power_limit.unmoved(220, cards(LAPTOP))[0], "unknown")


def test_the_difference_is_shown_of_the_cards_that_would_change():
    (difference,) = power_limit.differences(220, cards(TOWER, SECOND))
    assert (difference["before"], difference["after"]) == ("300 W\n", "220 W\n")


def test_the_unit_sets_the_limit_at_boot_and_when_the_drivers_daemon_starts():
    unit = RawConfigParser(strict=False)
    unit.optionxform = str
    unit.read_string(power_limit.unit(220, "/usr/bin/nvidia-smi").decode())
    assert unit["Service"]["ExecStart"] == "/usr/bin/nvidia-smi -pl 220"
    # One that stays active is not started again.
    assert unit["Service"].get("RemainAfterExit") is None
    wanted = unit["Install"]["WantedBy"].split()
    assert wanted == ["multi-user.target", "nvidia-persistenced.service"]
    assert [link.split("/")[-2] for link in power_limit.LINKS] == [f"{it}.wants" for it in wanted]
    assert "nvidia-persistenced.service" in unit["Unit"]["After"]


@pytest.fixture
def undo(program, tmp_path):
    """Return a function that takes a limit back with stand-ins; it returns their calls."""
    told = tmp_path / "told"
    program("systemctl", f'echo systemctl "$@" >>{told}')

    def act(answer: str, *before: str, status: int = 0, setting: int = 0) -> tuple[int, list[str]]:
        told.write_text("")
        query = f"cat <<'TEXT'\n{answer}\nTEXT\nexit {status}"
        sets = f'echo nvidia-smi "$@" >>{told}\nexit {setting}'
        program("nvidia-smi", f'case "$1" in --query*)\n{query};; esac\n{sets}')
        (command,) = power_limit.undoing(cards(*before))
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        return done.returncode, told.read_text().splitlines()

    return act


STOPPED = [f"systemctl stop {power_limit.UNIT}", "systemctl daemon-reload"]


def test_the_default_limits_are_set_again_on_the_cards_that_have_others(undo):
    now = "0, 220.00, 300.00\n1, 290.00, 290.00\n2, [N/A], [N/A]"
    assert undo(now, SECOND) == (0, [*STOPPED, "nvidia-smi -i 0 -pl 300.00"])
    # Persistence mode goes if it was off before.
    status, told = undo(now, TOWER, SECOND)
    assert (status, told[2:]) == (0, ["nvidia-smi -i 0 -pl 300.00", "nvidia-smi -pm 0"])


def test_a_driver_that_does_not_answer_has_nothing_to_be_set_again(undo):
    assert undo(MISMATCH, TOWER, status=18) == (0, STOPPED)


def test_a_limit_that_cannot_be_set_again_is_a_failure(undo):
    assert undo("0, 220.00, 300.00", SECOND, setting=4)[0] == 4
