"""Measuring a rank: the share of its computer that it may use meanwhile."""

from __future__ import annotations

import json

import pytest
from support.facts import assert_names

from hearth.measure.__main__ import main, part_of_free


@pytest.mark.parametrize(
    ("environment", "part"),
    [
        ({}, 8.0),  # measured by hand
        ({"LOCAL_WORLD_SIZE": "1"}, 8.0),
        ({"LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "3"}, 2.0),
    ],
)
def test_ranks_that_are_measured_at_once_share_the_free_memory(environment, part):
    assert part_of_free(10.0, environment) == pytest.approx(part)


def test_a_verb_that_finds_something_wrong_says_so_by_its_status(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["measure", "rank", "--run-file", f"{tmp_path}/none.yml"])
    assert main() == 2
    assert_names(json.loads(capsys.readouterr().out)["findings"][0], "none.yml")
