"""Streamed answers and conversations: the text of `generate`, until it ends or is interrupted."""

from __future__ import annotations

import pytest
import torch
from support.facts import refuses
from support.tiny_model import make_tokenizer

from hearth.after.answer import Conversation, Sampling, answer
from hearth.after.sides import Side
from hearth.base.errors import ModelError
from hearth.data.encode import encode_prompt
from hearth.data.messages import Message
from hearth.data.template import PLAIN_TEMPLATE
from hearth.model.backend import GREEDY

PROMPT = [Message("user", "say 1")]
SHORT = Sampling(max_tokens=12)


def answered(side, sampling=SHORT, **more):
    """Return an answer whose shown pieces are its text."""
    pieces = []
    found = answer(side, encode_prompt(side.tokenizer, PROMPT), sampling, pieces.append, **more)
    assert "".join(pieces) == found.text
    return found


def test_a_stream_has_the_text_of_generate(sides):
    for side in sides:
        prompt = torch.tensor([encode_prompt(side.tokenizer, PROMPT)])
        out = side.network.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=12, **GREEDY
        )
        new = out[0, prompt.shape[1] :]
        found = answered(side)
        assert found.text == side.tokenizer.decode(new, skip_special_tokens=True)
        assert (found.end, found.tokens) == ("length", 12)


def test_drawn_answers_depend_on_their_seed_alone(sides):
    first, other = (Sampling(temperature=1.0, seed=seed, max_tokens=12) for seed in (3, 4))
    alone = answered(sides[0], first).text
    torch.rand(3)
    assert answered(sides[0], first).text == alone
    assert answered(sides[0], other).text != alone


def test_an_answer_can_be_interrupted(sides):
    found = answered(sides[0], Sampling(max_tokens=500), interrupted=lambda: True)
    assert (found.end, found.tokens) == ("interrupted", 1)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_an_answer_ends_before_the_next_question(sides, length):
    text = answered(sides[0]).text
    until = text[4 : 4 + length]
    found = answered(sides[0], until=until)
    assert (found.end, found.text) == ("stop", text.partition(until)[0])


def test_an_answer_ends_with_a_stop_token(sides):
    base = sides[0]
    first = base.tokenizer(answered(base).text).input_ids[0]
    generation = base.network.generation_config
    known, generation.eos_token_id = generation.eos_token_id, [first]
    try:
        found = answered(base)
    finally:
        generation.eos_token_id = known
    assert (found.end, found.tokens, found.text) == ("stop", 0, "")


def test_each_side_has_a_history_of_its_own(sides):
    base, adapter = (Conversation(side, system="be brief") for side in sides)
    first = base.ask("say 1", SHORT, print)
    assert base.messages == [Message("user", "say 1"), Message("assistant", first.text.strip())]
    assert adapter.messages == []
    assert base.ask("say 1", SHORT, print).text != first.text  # it has read the first
    base.reset()
    assert base.ask("say 1", SHORT, print).text == first.text


def test_a_text_is_continued_as_it_is(sides):
    conversation = Conversation(sides[0], complete=True)
    prompt = torch.tensor([sides[0].tokenizer("rank node").input_ids])
    out = sides[0].network.generate(prompt, max_new_tokens=12, **GREEDY)
    whole = sides[0].tokenizer.decode(out[0, prompt.shape[1] :], skip_special_tokens=True)
    assert conversation.ask("rank node", SHORT, print).text == whole
    assert conversation.messages == []


def test_a_conversation_longer_than_the_model_reads_is_refused(sides):
    with refuses(ModelError, "2048", "/reset"):
        Conversation(sides[0]).ask("word " * 600, SHORT, print)


def test_a_model_without_a_template_is_asked_as_it_was_trained(sides):
    tokenizer = make_tokenizer()
    tokenizer.chat_template = PLAIN_TEMPLATE
    ids, until = Conversation(Side("base", sides[0].network, tokenizer))._tokens("Why?")
    assert tokenizer.decode(ids) == "User: Why?\nAssistant:"
    assert until == "\nUser:"
