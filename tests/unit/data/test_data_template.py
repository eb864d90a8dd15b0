"""The labels of a conversation: the answers and their ends, in every turn, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.facts import assert_names, refuses
from support.tiny_model import CHAT_TEMPLATE, make_tokenizer

from hearth.base.errors import ModelError
from hearth.data.answers import Ends
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


def learned(tokenizer, *messages: Message, stops: Sequence[str] = ()) -> list[str]:
    """Return the stretches of text that carry loss."""
    ids = tokenizer.convert_tokens_to_ids(list(stops))
    (tokens,) = encode(tokenizer, [Example(messages=messages)], ids)
    assert not isinstance(tokens, Problem), tokens
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
        (SYSTEM_LAST, (Message("system", "s"), *TWO_TURNS), [" pong", " pong"]),
        (TRIMMING, (CHAT[0], Message("assistant", "\n pong  ")), ["pong"]),
        (CHAT_TEMPLATE, (Message("user", "say pong"), Message("assistant", "pong")), ["pong"]),
    ],
)
def test_each_answer_is_learned_with_its_end_and_nothing_else(
    tokenizer, template, messages, answers
):
    tokenizer.chat_template = template
    assert learned(tokenizer, *messages) == [f"{answer}<|im_end|>" for answer in answers]


def test_an_end_that_begins_like_another_is_found_whole():
    tokens = ["<end>", "<end>-of-turn"]
    ends = Ends(tokens, tokens, "</s>")
    assert ends.find("yes<end>-of-turn no", 3, 19, calls=False) == (16, "<end>-of-turn")
    ends = Ends(["</s>"], tokens, "</s>")
    assert ends.find("yes<end>-of-turn no", 3, 19, calls=False) == (16, "<end>-of-turn")


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


def test_an_answer_without_an_end_before_the_next_question_is_refused(tokenizer):
    tokenizer.chat_template = NEVER_ENDING + "<|im_end|>"
    assert learned(tokenizer, *CHAT)[-1].endswith("pong\n<|im_end|>")
    (problem,) = encode(tokenizer, [Example(messages=TWO_TURNS)])
    assert_names(str(problem), "message 2", "end", "eos_token_id")


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
    asked = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    tokenizer.chat_template = asked
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


def test_a_base_model_has_no_place_for_the_result_of_a_tool(tokenizer):
    tokenizer.chat_template = None
    ensure_chat_template(tokenizer)
    messages = (CHAT[0], Message("tool", "rang"), CHAT[1])
    (problem,) = encode(tokenizer, [Example(messages=messages)])
    assert_names(str(problem), "message 2", "tool")


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


def talk(*texts: str) -> tuple[Message, ...]:
    """Return a conversation that the user begins."""
    return tuple(Message(("user", "assistant")[at % 2], text) for at, text in enumerate(texts))


# Templates of published models, shortened. Each writes the end of a turn, and special tokens that a
# word of the user's can be a piece of.
FAMILIES = {
    "ChatML": (CHAT_TEMPLATE, "<|im_end|>"),
    "Llama 3": (
        "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
        "{{ m.content | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}"
        "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
        "<|eot_id|>",
    ),
    "Gemma": (
        "{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
        "{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
        "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
        "<end_of_turn>",
    ),
    "Cohere2": (
        "{% for m in messages %}<|START_OF_TURN_TOKEN|>{% if m.role == 'user' %}<|USER_TOKEN|>"
        "{{ m.content }}{% else %}<|CHATBOT_TOKEN|><|START_RESPONSE|>{{ m.content }}"
        "<|END_RESPONSE|>{% endif %}<|END_OF_TURN_TOKEN|>{% endfor %}{% if add_generation_prompt %}"
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_RESPONSE|>{% endif %}",
        "<|END_RESPONSE|><|END_OF_TURN_TOKEN|>",
    ),
}
PIECES = [
    *("e", "d", "i", "m", "n", "o", "t", "end", "im", "of", "turn", "OK", "<", "_", "A", "|", ">"),
    *("user", "assistant", "model", "\n", " ", "<|", "|>", "<|im_", "im_end|>", "<|im_end|>"),
    *("<|im_start|>assistant\n", "<|eot_id|>", "<end_of_turn>", "<start_of_turn>model\n"),
    *("<|END_OF_TURN_TOKEN|>", "<|START_RESPONSE|>", "</s>", "pong", "<think>", "</think>"),
]


@pytest.fixture(params=FAMILIES)
def family(request):
    """A tokenizer with a family's template and special tokens, and the end of its answers."""
    template, end = FAMILIES[request.param]
    tokenizer = make_tokenizer()
    special = sorted(set(re.findall(r"<\|?[a-zA-Z_]+\|?>", template)))
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.eos_token = end.rpartition("<")[1] + end.rpartition("<")[2]
    tokenizer.chat_template = template
    return tokenizer, end


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(PIECES), max_size=4).map("".join), min_size=2, max_size=24)
)
def test_every_answer_is_learned_with_its_end_whatever_is_said(family, texts):
    """Also where a message is a piece of the template, or equal to another one."""
    tokenizer, end = family
    texts = texts[: len(texts) // 2 * 2]
    found = learned(tokenizer, *talk(*texts))
    assert ["".join(text.split()) for text in found] == [
        "".join(f"{text}{end}".split()) for text in texts[1::2]
    ]
    stops = encode(tokenizer, [Example(messages=talk(*texts))])[0].ids == tokenizer.eos_token_id
    if "<" not in "".join(texts):
        assert stops.sum() == len(texts)  # words are never taken for the structure


def test_hangman_ends_every_turn(family):
    tokenizer, end = family
    letters = "deimn_<eotOKAa"
    found = learned(tokenizer, *(m for letter in letters for m in talk(letter, f"{letter}?")))
    assert found == [f"{letter}?{end}" for letter in letters]


def test_an_answer_is_not_found_in_the_examples_of_a_system_message(tokenizer):
    tokenizer.chat_template = OPENING_A_THOUGHT.replace("assistant\n<think>", "assistant:<think>")
    system = Message("system", "Say A. For example: assistant: A")
    (tokens,) = encode(tokenizer, [Example(messages=(system, *talk("A?", "A")))])
    assert tokenizer.decode(tokens.ids[tokens.learned]) == "A<|im_end|>"
    assert tokens.learned[-2:].all()


def test_the_end_is_where_generation_stops_and_not_the_first_special_token(tokenizer):
    tokenizer.add_special_tokens({"additional_special_tokens": ["<think>", "</think>"]})
    tokenizer.chat_template = THINKING
    assert learned(tokenizer, *TWO_TURNS) == [
        "pong<|im_end|>",
        "<think>\n\n</think>\n\npong<|im_end|>",
    ]
    with_thought = (CHAT[0], Message("assistant", "<think>hm</think>pong"))
    tokenizer.chat_template = CHAT_TEMPLATE
    assert learned(tokenizer, *with_thought) == ["<think>hm</think>pong<|im_end|>"]


GLM = (  # its turns have no end: generation stops at the next one's beginning
    "{% for m in messages %}<|{{ m.role }}|>\n{% if m.role == 'assistant' %}<think>"
    "{{ m.reasoning_content if loop.last and m.reasoning_content }}</think>\n{% endif %}"
    "{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def test_a_turn_can_end_with_the_beginning_of_the_next(tokenizer):
    special = ["<|user|>", "<|assistant|>", "<|tool|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.chat_template = GLM
    messages = (*CHAT, TWO_TURNS[2], Message("assistant", "pong", thought="hm"))
    assert learned(tokenizer, *messages, stops=["<|user|>"]) == [
        "\n<think></think>\npong<|user|>",
        "\n<think>hm</think>\npong<|user|>",
    ]


def test_an_answer_of_weight_zero_is_read_and_not_learned(tokenizer):
    messages = (CHAT[0], replace(CHAT[1], learned=False), *TWO_TURNS[2:])
    assert learned(tokenizer, *messages) == ["pong<|im_end|>"]
    (tokens,) = encode(tokenizer, [Example(messages=messages)])
    assert tokenizer.decode(tokens.ids).count("pong<|im_end|>") == 2


def test_a_thought_is_written_in_tags_where_the_template_has_no_field_for_it(tokenizer):
    answer = Message("assistant", "pong", thought="hm")
    assert learned(tokenizer, CHAT[0], answer) == ["<think>\nhm\n</think>\n\npong<|im_end|>"]


def test_what_the_template_leaves_out_is_noted(tokenizer):
    tokenizer.chat_template = (  # R1-Distill: drops thoughts and opens one in the prompt
        "{% for m in messages if m.role != 'system' %}<|im_start|>{{ m.role }}\n"
        "{{ m.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
    )
    messages = (Message("system", "Be brief."), CHAT[0], Message("assistant", "<think>hm</think>A"))
    (tokens,) = encode(tokenizer, [Example(messages=messages)])
    assert tokenizer.decode(tokens.ids[tokens.learned]) == "A<|im_end|>"
    assert_names(" ".join(tokens.notes), "system messages", "thoughts", "<think>")


WITH_TOOLS = (
    "{% if tools %}{{ tools | tojson }}<|im_end|>{% endif %}{% for m in messages %}<|im_start|>"
    "{{ m.role }}\n{{ m.content }}{% for call in m.tool_calls or [] %}<call>"
    "{{ call.function | tojson }}</call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CALLING = (
    Message("user", "ping"),
    Message("assistant", calls=({"name": "ring", "arguments": {"times": 2, "who": "<|im_end|>"}},)),
    Message("tool", "rang"),
    Message("assistant", "pong"),
)
TOOLS = ({"type": "function", "function": {"name": "ring", "parameters": {}}},)


def test_calls_are_learned_with_tools_in_the_prompt(tokenizer):
    tokenizer.chat_template = WITH_TOOLS
    (tokens,) = encode(tokenizer, [Example(messages=CALLING, tools=TOOLS)])
    call, answer = tokenizer.decode(tokens.ids[tokens.learned]).split("</call><|im_end|>")
    assert json.loads(call.removeprefix("<call>"))["arguments"]["times"] == 2
    assert answer == "pong<|im_end|>"
    assert '"parameters"' in tokenizer.decode(tokens.ids[~tokens.learned])
    assert (tokens.ids == tokenizer.eos_token_id).sum() == 5  # the one in the call is text


def test_a_control_token_with_other_letters_is_text_in_a_call(tokenizer):
    end = "<|fin\u2581de|>"  # DeepSeek's tokens have such letters
    tokenizer.add_special_tokens({"eos_token": end})
    tokenizer.chat_template = WITH_TOOLS.replace("<|im_end|>", end)
    calls = ({"name": "ring", "arguments": {"who": end}},)
    (tokens,) = encode(tokenizer, [Example(messages=(CHAT[0], Message("assistant", calls=calls)))])
    assert (tokens.ids == tokenizer.eos_token_id).sum() == 2  # of the two turns


@pytest.mark.parametrize("tools", [(), TOOLS])
def test_calls_that_the_template_cannot_show_are_refused(tokenizer, tools):
    (problem,) = encode(tokenizer, [Example(messages=CALLING, tools=tools)])
    assert_names(str(problem), "template", "tools" if tools else "ring")


def test_a_template_that_marks_its_answers_is_believed(tokenizer):
    tokenizer.chat_template = CHAT_TEMPLATE.replace(
        "{{ message.content }}<|im_end|>",
        "{% if message.role == 'assistant' %}{% generation %}{{ message.content }}<|im_end|>"
        "{% endgeneration %}{% else %}{{ message.content }}<|im_end|>{% endif %}",
    )
    assert learned(tokenizer, *TWO_TURNS) == ["pong<|im_end|>"] * 2


def test_a_template_that_marks_its_answers_marks_them_behind_the_tools(tokenizer):
    tokenizer.chat_template = WITH_TOOLS.replace(
        "{{ m.content }}",
        "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
        "{% else %}{{ m.content }}{% endif %}",
    )
    (tokens,) = encode(tokenizer, [Example(messages=CHAT, tools=TOOLS)])
    assert tokenizer.decode(tokens.ids[tokens.learned]).startswith("pong")


@pytest.mark.parametrize("tools", [(), TOOLS])
def test_what_stands_before_a_mark_of_the_template_is_not_learned(tokenizer, tools):
    tokenizer.chat_template = (
        "{% if tools %}{{ tools | tojson }}<|im_end|>{% endif %}{% for m in messages %}"
        "{% if m.role == 'assistant' %}Say: {% generation %}{{ m.content }}<|im_end|>"
        "{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}"
    )
    (tokens,) = encode(tokenizer, [Example(messages=CHAT, tools=tools)])
    assert tokenizer.decode(tokens.ids[tokens.learned]) == "pong<|im_end|>"


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("<|im_start|>user\nhi<|im_end|>\n", "<|im_start|>user\nhi<|im_end|>"),
        ("a text that was ended<|im_end|>", "a text that was ended<|im_end|>"),
        ("prose about <|im_end|> here", "prose about <|im_end|> here<|im_end|>"),
    ],
)
def test_a_text_that_was_rendered_before_ends_once_and_prose_keeps_its_words(
    tokenizer, text, whole
):
    (tokens,) = encode(tokenizer, [Example(text=text)])
    assert tokenizer.decode(tokens.ids) == whole
    assert (tokens.ids == tokenizer.eos_token_id).sum() == 1
    assert bool(tokens.notes) == (not text.startswith("prose"))


def test_a_time_zone_does_not_change_the_tokens(tokenizer):
    tokenizer.chat_template = "{{ strftime_now('%Y-%m-%d %H') }}" + CHAT_TEMPLATE
    assert tokenizer.decode(encode_prompt(tokenizer, CHAT[:1])).startswith("2024-07-26 00")


def test_a_prompt_reads_words_as_training_does(tokenizer):
    prompt = encode_prompt(tokenizer, [Message("user", "what is <|im_end|>?")])
    assert prompt.count(tokenizer.eos_token_id) == 1


def test_an_answer_that_shares_a_token_with_the_template_is_refused(tokenizer):
    colons = CHAT_TEMPLATE.replace("{{ message.role }}\n", "{{ message.role }}:")
    tokenizer.chat_template = colons.replace("assistant\n", "assistant:")
    tokenizer.add_tokens([":po"])
    (problem,) = encode(tokenizer, [Example(messages=CHAT)])
    assert_names(str(problem), "message 2", "token", "template")


def test_an_answer_with_an_end_in_its_middle_is_refused(tokenizer):
    tokenizer.add_tokens(["<stop>"])  # no special token, so nothing can make it words
    stops = tokenizer.convert_tokens_to_ids(["<stop>"])
    (problem,) = encode(tokenizer, [Example(messages=talk("ping", "po<stop>ng"))], stops)
    assert_names(str(problem), "message 2", "<stop>", "<|im_end|>")
