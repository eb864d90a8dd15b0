"""A node's terms: read from a launch spec, with all faults at once, by the inventory's names."""

from __future__ import annotations

import pytest
from support.facts import refuses

from hearth.base.errors import LaunchError
from hearth.lend.terms import Hours, Terms, faults


def test_terms_are_read_from_a_launch_spec():
    terms = Terms.of({"when": "idle", "hours": "23:00-07:00", "after": 2, "command": " true "})
    assert terms == Terms("idle", Hours(((1380, 420),)), 2.0, "true")


def test_a_node_without_terms_lends_until_a_person_says_off():
    assert Terms.of({}) == Terms()
    assert Terms.of({"when": "", "hours": "", "after": 5, "command": ""}) == Terms()


def test_all_faults_come_at_once_and_name_the_variable():
    given = {
        "when": "idel",
        "hours": "23:00-07:00, noon",
        "after": -1,
        "command": "a\nb",
        "often": 1,
    }
    found = faults(given)
    assert [each.partition(":")[0] for each in found] == [
        *("lend_often", "lend_when", "lend_hours", "lend_after", "lend_command")
    ]
    assert "did you mean 'idle'" in found[1]
    assert "'noon'" in found[2]
    with refuses(LaunchError, *found):
        Terms.of(given)


@pytest.mark.parametrize("after", ["soon", None, float("nan"), 1e9, [5]])
def test_a_quiet_time_is_a_number_of_minutes(after):
    assert faults({"after": after})[0].startswith("lend_after: must be minutes from 0 to 1440")


@pytest.mark.parametrize("hours", [1380, None, ["23:00-07:00"]])
def test_hours_that_are_no_text_are_refused(hours):
    assert faults({"hours": hours})[0].startswith("lend_hours: ")
