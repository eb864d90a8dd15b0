"""Streamed answers: the tokens of `generate`, one a turn, apart from each other."""

from __future__ import annotations

import threading

import pytest
import torch
from support.facts import refuses

from hearth.after.answer import Answer, Sampling
from hearth.after.conversation import Conversation
from hearth.after.sides import Side
from hearth.base.errors import ModelError
from hearth.data.encode import encode_prompt
from hearth.data.messages import Message
from hearth.model.backend import GREEDY

PROMPT = [Message("user", "say 1")]
SHORT = Sampling(max_tokens=12)
DRAWN = Sampling(temperature=1.0, seed=3, max_tokens=12)


def ids_of(side):
    return encode_prompt(side.tokenizer, PROMPT)


def text_of(side, sampling=SHORT):
    answer = Answer(side, ids_of(side), sampling)
    assert "".join(answer) == answer.text
    return answer.text


def test_a_stream_has_the_text_of_generate_and_both_sides_stream_at_once(sides):
    whole = []
    for side in sides:
        prompt = torch.tensor([ids_of(side)])
        out = side.network.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=12, **GREEDY
        )
        new = out[0, prompt.shape[1] :]
        whole.append(side.tokenizer.decode(new, skip_special_tokens=True))
    both = [Answer(side, ids_of(side), SHORT) for side in sides]
    while any(answer.end is None for answer in both):
        for answer in both:
            if answer.end is None:
                answer.read()
    # Half a character at the end has no text yet.
    assert [answer.text for answer in both] == [text.rstrip("�") for text in whole]
    assert {answer.end for answer in both} == {"length"}
    assert [answer.tokens for answer in both] == [12, 12]


def test_drawn_answers_depend_on_their_seed_alone(sides):
    base, adapter = sides
    alone = text_of(base, DRAWN)
    torch.manual_seed(99)
    one, other = (Answer(side, ids_of(side), DRAWN) for side in (base, adapter))
    for _ in range(12):
        one.read()
        torch.rand(3)
        other.read()
    assert one.text[: len(alone)] == alone
    other.close(), one.close()
    assert text_of(base, Sampling(temperature=1.0, seed=4, max_tokens=12)) != alone


def test_an_answer_that_is_stopped_leaves_nothing_running(sides):
    before = threading.active_count()
    answer = Answer(sides[0], ids_of(sides[0]), Sampling(max_tokens=500))
    answer.read()
    answer.close()
    assert (answer.end, answer.tokens) == ("interrupted", 1)
    unread = Answer(sides[0], ids_of(sides[0]), SHORT)
    unread.close()
    assert (unread.end, unread.text) == ("interrupted", "")
    assert threading.active_count() == before


def test_an_answer_ends_with_a_stop_token_or_before_the_next_question(sides):
    base = sides[0]
    said = [token for piece in [text_of(base)] for token in base.tokenizer(piece).input_ids]
    until = text_of(base)[4:6]
    answer = Answer(base, ids_of(base), SHORT, until)
    assert "".join(answer) == text_of(base).partition(until)[0]
    assert answer.end == "stop"
    known = base.network.generation_config.eos_token_id
    base.network.generation_config.eos_token_id = [*known, said[0]]
    try:
        answer = Answer(base, ids_of(base), SHORT)
        assert "".join(answer) == ""
        assert (answer.end, answer.tokens) == ("stop", 0)
    finally:
        base.network.generation_config.eos_token_id = known


def test_an_error_of_the_model_is_raised_where_its_answer_is_read(sides):
    class Broken:
        device, generation_config = sides[0].network.device, sides[0].network.generation_config

        def generate(self, **_):
            raise torch.OutOfMemoryError

    answer = Answer(Side("base", Broken(), sides[0].tokenizer), [1], SHORT)
    with pytest.raises(torch.OutOfMemoryError):
        answer.read()
    answer.close()


def test_each_side_has_a_history_of_its_own(sides):
    base, adapter = (Conversation(side, system="be brief") for side in sides)
    first = base.ask("say 1", SHORT)
    list(first)
    base.keep("say 1", first)
    assert base.messages == [Message("user", "say 1"), Message("assistant", first.text.strip())]
    assert adapter.messages == []
    second = base.ask("say 1", SHORT)
    list(second)
    assert second.text != first.text  # it has read the first
    base.reset()
    again = base.ask("say 1", SHORT)
    assert "".join(again) == first.text


def test_a_text_is_gone_on_with_as_it_is(sides):
    conversation = Conversation(sides[0], complete=True)
    answer = conversation.ask("rank node", SHORT)
    prompt = torch.tensor([sides[0].tokenizer("rank node").input_ids])
    out = sides[0].network.generate(prompt, max_new_tokens=12, **GREEDY)
    whole = sides[0].tokenizer.decode(out[0, prompt.shape[1] :], skip_special_tokens=True)
    assert "".join(answer) == whole.rstrip("�")
    conversation.keep("rank node", answer)
    assert conversation.messages == []


def test_a_conversation_longer_than_the_model_reads_is_refused(sides):
    with refuses(ModelError, "2048", "/reset"):
        Conversation(sides[0]).ask("word " * 600, SHORT)
