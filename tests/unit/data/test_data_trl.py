"""The marks of answers against those of TRL, whose templates have twins that mark them.

A twin marks what the model's own template writes, but for these:

- Some twins mark the whole turn, the header too that the prompt for an answer already holds.
- Some render otherwise, so that earlier turns are written like the last one, or that a thought is
  kept which the model's own template drops. Only turns that both write alike are compared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

import pytest
from support.facts import assert_names
from support.tiny_model import make_tokenizer

from hearth.data.encode import encode, encode_prompt
from hearth.data.findings import Problem
from hearth.data.messages import Example, Message

TEMPLATES = Path(find_spec("trl").submodule_search_locations[0], "chat_templates")
PAIRS = [
    path.name.removesuffix("_training.jinja") for path in sorted(TEMPLATES.glob("*_training.jinja"))
]
ORIGINALS = [
    path.stem for path in sorted(TEMPLATES.glob("*.jinja")) if not path.stem.endswith("_training")
]
SPECIAL = re.compile(r"<[|｜][^<>'\"\s{}]+?[|｜]>|<(?:bos|sop|end_of_\w+|start_of_turn)>|\[gMASK\]")
STOPS = {  # eos_token of the tokenizer, then the others of generation_config.json
    "cohere": ["<|END_OF_TURN_TOKEN|>"],
    "deepseek": ["<｜end▁of▁sentence｜>"],
    "diffusion": ["<turn|>", "<|tool_response>"],
    "gemma4": ["<turn|>", "<|tool_response>"],
    "gemma": ["<eos>", "<end_of_turn>"],
    "glm": ["<|endoftext|>", "<|user|>", "<|observation|>"],
    "gptoss": ["<|return|>", "<|endoftext|>", "<|call|>"],
    "idefics": ["<end_of_utterance>"],
    "llama": ["<|eot_id|>", "<|eom_id|>"],
    "llava": ["</s>"],
    "muse": ["<|eot|>"],
    "phi": ["<|endoftext|>", "<|end|>"],
    "smolvlm": ["<end_of_utterance>"],
}
CONVERSATIONS = {
    "one turn": [("user", "ping"), ("assistant", "pong")],
    "three turns": [
        *(("user", "ping"), ("assistant", "pong")),
        *(("user", "pong?"), ("assistant", "A"), ("user", "d"), ("assistant", "end")),
    ],
    "examples in the system message": [
        ("system", "Say A. Example:\nuser: e\nassistant: A"),
        *(("user", "A"), ("assistant", "A"), ("user", "end"), ("assistant", "e")),
    ],
    "one-letter turns": [
        (role, letter) for letter in "deimn_<aA" for role in ("user", "assistant")
    ],
}


@dataclass(frozen=True)
class Family:
    """A model's tokenizer with its own template, the same with TRL's, and the other stops."""

    own: object
    marked: object
    stops: list[int]


def family(name: str) -> Family:
    """Return the tokenizers of a family of models: bytes, and the special tokens that it names."""
    twin = "_training" if name in PAIRS else ""
    texts = [(TEMPLATES / f"{name}{kind}.jinja").read_text() for kind in ("", twin)]
    eos, *more = next((STOPS[key] for key in STOPS if name.startswith(key)), ["<|im_end|>"])
    both = []
    for text in texts:
        tokenizer = make_tokenizer()
        special = sorted({*SPECIAL.findall(texts[0]), eos, *more})
        tokenizer.add_special_tokens({"additional_special_tokens": special})
        tokenizer.bos_token, tokenizer.eos_token = "<|bos|>", eos
        tokenizer.chat_template = text
        both.append(tokenizer)
    return Family(*both, both[0].convert_tokens_to_ids(more))


def spans(tokenizer, ids, learned) -> list[str]:
    """Return the learned stretches as text, without white space."""
    pairs = groupby(zip(ids, learned, strict=True), key=lambda pair: bool(pair[1]))
    texts = [tokenizer.decode([token for token, _ in each]) for flag, each in pairs if flag]
    return ["".join(text.split()) for text in texts]


def of_trl(models: Family, messages: list[dict], tools: list[dict] | None = None) -> list[str]:
    """Return the stretches that TRL's twin marks, each up to the first token that stops."""
    made = models.marked.apply_chat_template(
        messages, tools=tools, return_assistant_tokens_mask=True, return_dict=True
    )
    stops = models.own.convert_ids_to_tokens([models.own.eos_token_id, *models.stops])
    found = spans(models.marked, made["input_ids"], made["assistant_masks"])
    end = re.compile("|".join(map(re.escape, stops)))
    return [text[: cut.end()] if (cut := end.search(text)) else text for text in found]


def without_prompt(models: Family, messages: Sequence[Message], text: str) -> str:
    """Return `text` without the beginning that the prompt behind `messages` ends with.

    The prompt may open a thought that the turn lacks.
    """
    prompt = "".join(models.own.decode(encode_prompt(models.own, messages)).split())
    prompts = prompt, prompt.removesuffix("<think>")
    sizes = (
        size
        for size in range(len(text), 0, -1)
        if text[:size] and any(each.endswith(text[:size]) for each in prompts)
    )
    return text[next(sizes, 0) :]


def content(name: str, text: str) -> object:
    """Return a content as the templates of a family read it: models that see want parts."""
    in_parts = name in ("idefics3", "llava_next", "smolvlm")
    return [{"type": "text", "text": text}] if in_parts else text


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("name", PAIRS)
def test_answers_are_marked_as_trl_marks_them(name, conversation):
    models = family(name)
    plain = CONVERSATIONS[conversation]
    messages = tuple(Message(*each) for each in plain)
    (mine,) = encode(models.own, [Example(messages)], models.stops)
    written = [{"role": role, "content": content(name, text)} for role, text in plain]
    if isinstance(mine, Problem):
        assert plain[0][0] == "system" and "not supported" in str(mine)
        return
    theirs = [without_prompt(models, messages[:-1], text) for text in of_trl(models, written)]
    assert spans(models.own, mine.ids, mine.learned)[-1] == theirs[-1]
    alike, other = (
        each.apply_chat_template(written, tokenize=False) for each in (models.own, models.marked)
    )
    if alike == other:
        assert spans(models.own, mine.ids, mine.learned) == theirs


@pytest.mark.parametrize("name", PAIRS)
def test_thoughts_are_marked_as_trl_marks_them(name):
    models = family(name)
    messages = (Message("user", "ping"), Message("assistant", "pong", thought="zugzwang"))
    fields = dict.fromkeys(("reasoning_content", "thinking"), "zugzwang")
    written = [
        {"role": "user", "content": content(name, "ping")},
        {"role": "assistant", "content": content(name, "pong")} | fields,
    ]
    if "zugzwang" not in models.own.apply_chat_template(written, tokenize=False):
        pytest.skip("this template has no field for thoughts")
    (mine,) = encode(models.own, [Example(messages)], models.stops)
    (theirs,) = of_trl(models, written)
    (span,) = spans(models.own, mine.ids, mine.learned)
    assert "zugzwang" in span
    assert theirs.endswith(span)


CALL = {"name": "weather", "arguments": {"city": "Graz", "days": 2}}
TOOL = {
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


@pytest.mark.parametrize("name", PAIRS)
def test_calls_are_marked_as_trl_marks_them(name):
    models = family(name)
    tools = [{"type": "function", "function": TOOL}]
    messages = (
        Message("user", "Weather there?"),
        Message("assistant", calls=(CALL,)),
        Message("tool", "sunny", details={"name": "weather"}),
        Message("assistant", "It is sunny."),
    )
    written = [
        {"role": "user", "content": "Weather there?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": CALL, "id": "000000001"}],
        },
        {"role": "tool", "content": "sunny", "name": "weather", "tool_call_id": "000000001"},
        {"role": "assistant", "content": "It is sunny."},
    ]
    (mine,) = encode(models.own, [Example(messages, tools=tuple(tools))], models.stops)
    if isinstance(mine, Problem):  # never silent about what the template does not show
        assert_names(str(mine), "template")
        assert not shows_all(models, written, tools)
        return
    rendered = models.own.apply_chat_template(written, tools=tools, tokenize=False)
    marked = models.marked.apply_chat_template(written, tools=tools, tokenize=False)
    if rendered != marked:
        pytest.skip("TRL's template writes calls otherwise than the model's own")
    theirs = [without_prompt(models, messages[:1], text) for text in of_trl(models, written, tools)]
    found = spans(models.own, mine.ids, mine.learned)
    # The end of Gemma 4's calls is the beginning of their result, and the prompt behind a result
    # lacks the header. TRL marks neither.
    found = [text.removesuffix("<|tool_response>").removeprefix("<|turn>model") for text in found]
    assert found == theirs


def shows_all(models: Family, messages: list[dict], tools: list[dict]) -> bool:
    """Return whether the model's own template shows tools, call and result."""
    try:
        text = models.own.apply_chat_template(messages, tools=tools, tokenize=False)
    except Exception:
        return False
    return all(word in text for word in ("of a city", "Graz", "sunny"))


@pytest.mark.parametrize("name", ORIGINALS)
def test_of_no_template_a_question_is_learned_or_an_answer_missed(name):
    """Also of those without a twin; all messages hold pieces of templates."""
    models = family(name)
    pieces = ["end", "<|im_", "think>", "assistant\n", "d", "[INST]", "<｜", "of", "|>", "_"]
    messages = tuple(
        Message(role, f"{piece} {role[0]}{at} {piece}")
        for at, piece in enumerate(pieces)
        for role in ("user", "assistant")
    )
    (mine,) = encode(models.own, [Example(messages)], models.stops)
    assert not isinstance(mine, Problem), mine
    found = spans(models.own, mine.ids, mine.learned)
    stops = models.own.convert_ids_to_tokens([models.own.eos_token_id, *models.stops])
    assert len(found) == len(pieces)
    for at, (span, message) in enumerate(zip(found, messages[1::2], strict=True)):
        assert "".join(message.content.split()) in span
        assert f"u{at}" not in span
        assert span.endswith(("<|end|>", *stops))  # gpt-oss ends earlier turns with <|end|>
