"""The person's choice: kept in a file, over at its end, and off where it is unreadable."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from hearth.lend.choice import AUTO, OFF, ON, LendChoice, choice_file, read, write

NOW = datetime(2026, 11, 26, 20, 0, tzinfo=UTC)


@pytest.mark.parametrize("word", [OFF, ON])
@pytest.mark.parametrize("until", [None, NOW + timedelta(hours=2)])
def test_a_word_is_read_as_it_was_written(tmp_path, word, until):
    choice = LendChoice(word, NOW, until)
    write(tmp_path, choice)
    assert read(tmp_path) == choice


def test_without_a_file_the_terms_decide(tmp_path):
    assert read(tmp_path) == LendChoice()
    write(tmp_path, LendChoice(OFF, NOW))
    write(tmp_path, LendChoice(AUTO, NOW))
    assert not choice_file(tmp_path).exists()
    write(tmp_path, LendChoice(AUTO, NOW))
    assert read(tmp_path) == LendChoice()


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "{}", '{"lend": "perhaps"}', '{"lend": true}', '{"lend": ["off"]}'),
        *('{"lend": "on", "until": "7"}', '{"lend": "on", "until": "2026-11-26T20:00:00"}'),
        '{"lend": "on", "until": 7}',
    ],
)
def test_a_broken_file_counts_as_off_and_is_named(tmp_path, text):
    choice_file(tmp_path).write_text(text)
    choice = read(tmp_path)
    assert choice.at(NOW) == OFF
    assert str(choice_file(tmp_path)) in choice.trouble
    write(tmp_path, LendChoice(AUTO))
    assert read(tmp_path) == LendChoice()


def test_a_word_holds_up_to_its_end():
    choice = LendChoice(ON, NOW, NOW + timedelta(hours=2))
    assert choice.at(NOW + timedelta(hours=1, minutes=59)) == ON
    assert choice.at(NOW + timedelta(hours=2)) == AUTO
