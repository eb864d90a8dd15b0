"""The model card of a run, its curve, and the words that repeat a part."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from huggingface_hub import ModelCard
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names

from hearth.after.card import card_text, sparkline
from hearth.after.request import ResultRequest, by_command, by_hand
from hearth.base.errors import ConfigError
from hearth.config.adapter import Ancestor, StartAdapter
from hearth.record.events import Score, ScoresEvent
from hearth.record.story import Story, read_story

HUB = {"kind": "hub", "id": "HuggingFaceTB/SmolLM2-135M-Instruct", "name": "smollm2-135m"}


def test_a_card_says_whence_what_and_how_good(folder, changed):
    data = {"data/words.jsonl": 0.5, "HuggingFaceH4/no_robots": 0.5}
    run = changed(HUB, model="smollm2-135m", dataset=data, lora_rank=32)
    scores = [Score("arc_easy", "acc", 0.5, 0.01, before=0.4, before_error=0.01, examples=2376)]
    story = read_story(folder)
    story.add(ScoresEvent(scores=scores))
    card = ModelCard(card_text(run, "ada/evening", story))
    assert card.data.base_model == HUB["id"]
    assert card.data.license == "apache-2.0"
    assert card.data.datasets == ["HuggingFaceH4/no_robots"]
    assert "hearth" in card.data.tags
    assert_names(card.text, "266.8", "179.3", "words.jsonl", "| `lora_rank` | 32 |")
    assert_names(
        card.text,
        "da99e3937e74dacf",
        "arc_easy",
        "0.4",
        "0.5",
        "better",
        "2,376",
        "█",
        "ada/evening",
    )


def test_a_card_names_the_runs_before_and_no_path(folder, changed):
    chain = (Ancestor("two", "dpo", "likes", 30), Ancestor("one", "sft", "homelab-qa", None))
    start = StartAdapter("/mine/two/adapter/weights", "ab" * 32, 5, lineage=chain)
    run = replace(changed(HUB, model="smollm2-135m", onto="/mine/two/adapter"), start=start)
    text = card_text(run, "ada/evening", read_story(folder))
    assert_names(text, "two (dpo on likes, 30 steps)", "one (sft on homelab-qa)")
    assert "/mine" not in text
    unknown = replace(run, start=replace(start, lineage=()))
    assert "/mine" not in card_text(unknown, "ada/evening", read_story(folder))


def test_a_whole_model_and_one_from_random_weights_have_cards_of_their_own(folder, changed):
    whole = ModelCard(card_text(changed(HUB, lora=False), "ada/x", read_story(folder)))
    assert (whole.data.library_name, whole.data.base_model) == ("transformers", HUB["id"])
    drawn = ModelCard(card_text(changed(HUB, lora=False, scratch=True), "ada/x", Story()))
    assert drawn.data.base_model is None
    assert "lora" not in whole.data.tags + drawn.data.tags


@given(st.lists(st.floats(-1e6, 1e6)), st.integers(1, 80))
def test_a_curve_is_as_long_as_it_may_be_and_has_the_shape_of_its_values(values, width):
    line = sparkline(values, width)
    assert len(line) == min(width, len(values))
    if len(values) <= width and values and max(values) > min(values):
        assert line[values.index(max(values))] == "█"
        assert line[values.index(min(values))] == "▁"


def test_a_request_is_held_to_the_rules_of_the_settings():
    request = ResultRequest.typed(
        eval="hellaswag, arc_easy",
        eval_limit="20",
        copy_to="/mnt/nas",
        push="ada/x",
        private="false",
        best="true",
    )
    assert request == ResultRequest(("hellaswag", "arc_easy"), 20, "/mnt/nas", "ada/x", False, True)
    assert [part.kind for part in request.parts] == ["eval", "copy_to", "push"]
    with pytest.raises(ConfigError) as caught:
        ResultRequest.typed(eval_limit="0", copy_to="runs", push="ada")
    assert_names("\n".join(caught.value.findings), "eval_limit", "copy_to", "push", "owner/name")
    with pytest.raises(ConfigError, match="eval_limit"):
        ResultRequest.typed(eval_limit="5", push="ada/x")


@pytest.mark.parametrize("place", ["/mnt/nas", "/mnt/my nas/it's", '/mnt/a "b"', "/mnt/a\\b$c"])
def test_the_place_that_was_asked_for_can_be_pasted(place):
    command = by_command("hearth", "r")(ResultRequest.typed(copy_to=place))
    assert shlex.split(command) == ["hearth", "share", "--run", "r", "--copy-to", place]


def test_an_address_with_a_password_is_refused_without_showing_it():
    with pytest.raises(ConfigError) as caught:
        ResultRequest.typed(copy_to="sftp://ada:geheim@nas.home/runs")
    (finding,) = caught.value.findings
    assert_names(finding, "copy_to", "nas.home", "password")
    assert "geheim" not in finding
    assert ResultRequest.typed(copy_to="sftp://ada@nas.home/runs").copy_to


def test_each_part_has_the_line_that_repeats_it():
    request = ResultRequest(("a", "b"), 20, "/mnt/my nas", "ada/x", private=False, best=True)
    play = [by_command("hearth -i inventory/home", "r")(part) for part in request.parts]
    hand = [by_hand("runs/r")(part) for part in request.parts]
    assert [shlex.split(line)[3] for line in play] == [*["eval", "share", "share"]]
    assert "--private off" in play[2]
    evaluate = ["training/evaluate.py", "runs/r", "a,b", "--limit", "20", "--best"]
    assert shlex.split(hand[0])[1:] == evaluate
    assert shlex.split(hand[1])[3:5] == ["--copy-to", "/mnt/my nas"]
    assert hand[2].endswith("--private off --best")
