"""A look at the data before a run: nothing but the data is needed, and nothing is left behind."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from support.facts import assert_names, refuses
from support.tiny_model import make_dataset

from hearth.base.errors import HearthError
from hearth.config import resolve_run
from hearth.config.layout import Layout
from hearth.node.preview import Preview, for_preview, lines, of_answer, preview


@pytest.fixture
def preview_of(tmp_path, tiny_model):
    """Return a function that returns the preview of a data set."""
    layout = Layout(*(tmp_path / name for name in ("runs", "checkpoints", "data", "cache")), False)

    def looked(dataset, **given) -> Preview:
        run = resolve_run(
            {"model": str(tiny_model), "dataset": str(dataset), **given}, layout.results
        )
        found = preview(for_preview(run), layout, 3, lambda _: None)
        assert not layout.results.exists() or not list(layout.results.iterdir())
        return found

    return looked


def test_the_table_says_what_becomes_of_the_data(preview_of, tmp_path):
    path = make_dataset(tmp_path / "x.jsonl", 40)
    with path.open("a") as file:
        for record in ({"prompt": "a", "completion": ""}, {"text": "b", "id": 3, "from": "me"}):
            file.write(json.dumps(record) + "\n")
    found = preview_of(path)
    assert len(found.examples) == 3
    table = dict(found.table)
    assert {"examples", "held out", "rows", "tokens", "learned", "longest"} <= table.keys()
    assert_names(table["left out as blank"], 1, "line 41")
    assert table["not used"] == "from, id"
    assert_names(table["batch"], "steps", "warm-up")


def test_a_mixture_has_a_table_for_each_data_set(preview_of, tmp_path):
    one, other = (make_dataset(tmp_path / f"{name}.jsonl", 40 + at) for at, name in enumerate("ab"))
    found = preview_of(f"{one}=0.5,{other}=0.5")
    names = [value for name, value in found.table if name == "data"]
    assert [each.rpartition("/")[2] for each in names] == ["a.jsonl", "b.jsonl"]
    assert [each.source.rpartition("/")[2][0] for each in found.examples[:2]] == ["a", "b"]


def test_a_pair_is_shown_with_both_sides_and_an_answer_with_its_label(preview_of, tmp_path):
    path = tmp_path / "x.jsonl"
    asked = "which of all ranks is the first one?"
    records = [{"prompt": f"{n}: {asked}", "chosen": "0", "rejected": "1"} for n in range(9)]
    path.write_text("\n".join(map(json.dumps, records)))
    found = preview_of(path, objective="dpo")
    assert [each.side for each in found.examples] == ["chosen", "rejected"] * 3
    assert dict(found.table).keys() >= {"pairs", "held out", "rows"}
    screen = lines(found, False, 120)
    assert [line.partition(":")[0] for line in screen if line.startswith("example")] == [
        f"example {number}, {side}" for number in (1, 2, 3) for side in ("chosen", "rejected")
    ]
    shown = "".join(screen).replace("·", "")
    assert shown.count(asked.replace(" ", "")) or shown.count(asked) == 3  # not again for the other
    found = preview_of(path, objective="kto")
    assert [each.side for each in found.examples] == ["preferred", "to avoid", "preferred"]
    assert "answers" in dict(found.table)
    for width in (80, 120):
        assert all(len(line) <= width for line in lines(found, False, width))


def test_a_preview_travels_as_json_and_fits_the_screen(preview_of, tmp_path):
    found = preview_of(make_dataset(tmp_path / "x.jsonl", 40))
    assert of_answer(json.loads(json.dumps(asdict(found)))) == found
    for width in (60, 80, 120):
        assert all(len(line) <= width for line in lines(found, False, width))


def test_wrong_data_are_named_with_their_line(preview_of, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"prompt": "a"}\n')
    with refuses(HearthError, f"{path}:1"):
        preview_of(path)
    with refuses(HearthError, path):
        path.write_text("")
        preview_of(path)
