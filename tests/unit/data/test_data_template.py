"""The labels of a conversation: the answers and their ends, in every turn, and nothing else."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

import pytest
from support.facts import assert_names, refuses
from support.tiny_model import CHAT_TEMPLATE, make_tokenizer

from hearth.base.errors import ModelError
from hearth.data.encode import encode, encode_prompt
from hearth.data.findings import Problem
from hearth.data.messages import Example, Message
from hearth.data.template import ensure_chat_template, tokenizer_fingerprint

# Shortened forms of published templates; each shows one way in which they differ.
TRIMMING = (  # Llama 3, Gemma
    "{% for m in messages %}<|im_start|>{{ m.role }}\n\n{{ m.content | trim }}<|im_end|>"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n\n{% endif %}"
)
BRACKETS = (  # Llama 2, Mistral: no prompt for the answer, one space before it
    "{% for m in messages %}{% if m.role == 'user' %}<|im_start|>[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content }} <|im_end|>{% endif %}{% endfor %}"
)
THINKING = (  # Qwen 3: an empty thought in the last answer only, thoughts of earlier ones dropped
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.last %}<think>\n\n</think>\n\n{% endif %}"
    "{{ m.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
OPENING_A_THOUGHT = (  # Qwen 3 Thinking: the prompt for the answer is not in the answer
    CHAT_TEMPLATE.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
)
SYSTEM_LAST = (  # Mistral: the system message stands in the last question
    "{% for m in messages if m.role != 'system' %}{% if m.role == 'user' %}"
    "[INST] {{ messages[0].content if loop.revindex <= 2 }} {{ m.content }}[/INST]"
    "{% else %} {{ m.content }}<|im_end|>{% endif %}{% endfor %}"
)
NEVER_ENDING = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"

CHAT = (Message("user", "ping"), Message("assistant", "pong"))
TWO_TURNS = (*CHAT, Message("user", "pong?"), Message("assistant", "pong"))


@pytest.fixture
def tokenizer():
    return make_tokenizer()


def learned(tokenizer, *messages: Message) -> list[str]:
    """Return the stretches of text that carry loss."""
    (tokens,) = encode(tokenizer, [Example(messages=messages)])
    stretches = groupby(zip(tokens.ids, tokens.learned, strict=True), key=itemgetter(1))
    return [tokenizer.decode([token for token, _ in each]) for flag, each in stretches if flag]


@pytest.mark.parametrize(
    ("template", "messages", "answers"),
    [
        (CHAT_TEMPLATE, TWO_TURNS, ["pong", "pong"]),
        (TRIMMING, TWO_TURNS, ["pong", "pong"]),
        (BRACKETS, TWO_TURNS, [" pong ", " pong "]),
        (THINKING, TWO_TURNS, ["pong", "<think>\n\n</think>\n\npong"]),
        (OPENING_A_THOUGHT, TWO_TURNS, ["pong", "pong"]),
        # A system message that moves, white space around an answer, an answer in its question.
        (SYSTEM_LAST, (Message("system", "s"), *TWO_TURNS), ["pong", " pong"]),
        (TRIMMING, (CHAT[0], Message("assistant", "\n pong  ")), ["pong"]),
        (CHAT_TEMPLATE, (Message("user", "say pong"), Message("assistant", "pong")), ["pong"]),
    ],
)
def test_each_answer_is_learned_with_its_end_and_nothing_else(
    tokenizer, template, messages, answers
):
    tokenizer.chat_template = template
    assert learned(tokenizer, *messages) == [f"{answer}<|im_end|>" for answer in answers]


def test_the_prompt_is_what_precedes_the_answer(tokenizer):
    (tokens,) = encode(tokenizer, [Example(messages=CHAT)])
    prompt = encode_prompt(tokenizer, CHAT[:1])
    assert tokens.ids[: len(prompt)].tolist() == prompt
    assert not tokens.learned[: len(prompt)].any()
    assert tokens.learned[len(prompt) :].all()


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, TRIMMING, BRACKETS, THINKING])
def test_a_greeting_that_answers_nobody_is_learned_too(tokenizer, template):
    tokenizer.chat_template = template
    first, *_, last = learned(tokenizer, Message("assistant", "hello"), *CHAT)
    assert (first.split("<|im_end|>")[0].strip(), "pong" in last) == ("hello", True)


def test_an_earlier_thought_that_the_template_drops_is_not_missed(tokenizer):
    tokenizer.chat_template = THINKING
    first = Message("assistant", "<think>hm</think>pong")
    assert learned(tokenizer, CHAT[0], first, *TWO_TURNS[2:])[0] == "pong<|im_end|>"


def test_what_follows_the_last_answer_is_left_out(tokenizer):
    (tokens,) = encode(tokenizer, [Example(messages=(*CHAT, Message("user", "thanks")))])
    assert tokenizer.decode(tokens.ids).endswith("pong<|im_end|>")


def test_an_end_is_learned_where_the_template_writes_none(tokenizer):
    tokenizer.chat_template = NEVER_ENDING
    assert learned(tokenizer, *CHAT)[-1].endswith("pong<|im_end|>")


def test_a_question_is_not_learned_where_only_the_whole_conversation_ends(tokenizer):
    tokenizer.chat_template = NEVER_ENDING + "<|im_end|>"
    first, second = learned(tokenizer, *TWO_TURNS)
    assert first.endswith("pong")
    assert second.endswith("pong\n<|im_end|>")
    assert "pong?" not in first + second


def test_text_is_learned_whole_and_ends(tokenizer):
    (tokens,) = encode(tokenizer, [Example(text="loss")])
    assert tokenizer.decode(tokens.ids) == "loss<|im_end|>"
    assert tokens.learned.all()


def test_chats_and_texts_keep_their_order(tokenizer):
    texts, chats = [Example(text=f"text {i}") for i in range(3)], [Example(messages=CHAT)] * 3
    mixed = [each for pair in zip(texts, chats, strict=True) for each in pair]
    assert [tokenizer.decode(tokens.ids)[:6] for tokens in encode(tokenizer, mixed)] == [
        *("text 0", "<|im_s", "text 1", "<|im_s", "text 2", "<|im_s")
    ]


def test_a_template_that_hides_an_answer_is_told(tokenizer):
    tokenizer.chat_template = "{{ messages | length }}"
    (problem,) = encode(tokenizer, [Example(messages=CHAT)])
    assert isinstance(problem, Problem)
    assert_names(str(problem), "answer", "message 2")


def test_a_base_model_gets_the_plain_template(tokenizer):
    tokenizer.chat_template = None
    ensure_chat_template(tokenizer)
    (tokens,) = encode(tokenizer, [Example(messages=(Message("system", "s"), *TWO_TURNS))])
    assert tokenizer.decode(tokens.ids) == (
        "s\n\nUser: ping\nAssistant: pong<|im_end|>\nUser: pong?\nAssistant: pong<|im_end|>"
    )
    assert learned(tokenizer, *TWO_TURNS) == [" pong<|im_end|>", " pong<|im_end|>"]


def test_a_tokenizer_without_an_end_is_refused(tokenizer):
    tokenizer.eos_token = None
    with refuses(ModelError, "end-of-sequence token"):
        ensure_chat_template(tokenizer)


def test_the_day_does_not_change_the_tokens(tokenizer):
    tokenizer.chat_template = (
        "{% if not date_string is defined %}{% set date_string = strftime_now('%s%f') %}{% endif %}"
        "{{ date_string }}" + CHAT_TEMPLATE
    )
    assert "26 Jul 2024" in tokenizer.decode(encode_prompt(tokenizer, CHAT[:1]))


def test_the_fingerprint_follows_template_and_tokens_but_not_use(tokenizer):
    before = tokenizer_fingerprint(tokenizer)
    tokenizer(["a", "bcd"], padding=True, truncation=True, max_length=2)
    assert tokenizer_fingerprint(tokenizer) == before == tokenizer_fingerprint(make_tokenizer())
    tokenizer.chat_template += " "
    with_space = tokenizer_fingerprint(tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<x>"]})
    assert len({before, with_space, tokenizer_fingerprint(tokenizer)}) == 3
