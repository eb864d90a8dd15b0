"""The table of playbooks/lend.yml: who has each node."""

from __future__ import annotations

from hearth_controller.runs.listing import lending_lines

AUTO = {
    "word": "auto",
    "until": None,
    "trouble": "",
    "run": "night",
    "away": "",
    "lends": True,
    "since": "21:09",
}


def test_each_node_is_shown_with_its_word_and_its_run():
    lines = lending_lines(
        {
            "tower": AUTO | {"word": "off", "until": "07:00"},
            "laptop": AUTO | {"away": "game (process 70) draws on the GPU"},
            "oldbox": AUTO,
            "nas": AUTO | {"run": "", "since": None},
            "attic": None,
        }
    )
    assert lines == [
        "node    lends  until  run",
        "tower   off    07:00  night  leaves after its step",
        "laptop  auto       –  night  away since 21:09: game (process 70) draws on the GPU",
        "oldbox  auto       –  night  has the machine since 21:09",
        "nas     auto       –  –      no run is under way",
        "attic   –          –  –      not answered",
    ]


def test_a_node_that_was_switched_on_a_moment_ago_returns():
    away = AUTO | {"word": "on", "away": "its hours are 21:03-07:00; lends again at 21:03"}
    (_, line) = lending_lines({"tower": away})
    assert "away since 21:09; it returns" in line
    assert "21:03" not in line


def test_a_run_without_lending_stays_whatever_is_said():
    (_, line) = lending_lines({"tower": AUTO | {"word": "off", "lends": False}})
    assert "stays to its end" in line
    assert "hearth stop" in line


def test_a_broken_word_is_shown_with_what_mends_it():
    trouble = "/ws/lend.json cannot be read: `hearth-lend auto` writes it anew"
    (_, line) = lending_lines({"tower": AUTO | {"word": "off", "run": "", "trouble": trouble}})
    assert trouble in line


def test_where_no_node_has_facts_there_is_no_table():
    assert lending_lines({"tower": {}}) == []
