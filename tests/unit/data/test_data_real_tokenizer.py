"""SmolLM2's own tokenizer and template: each turn of a game of one-letter words ends."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from transformers import AutoTokenizer

from hearth.config import load_preset
from hearth.config.layout import Layout
from hearth.data.encode import encode
from hearth.data.messages import Example, Message
from hearth.model.fetch import fetch_model

WORDS = ("attic", "cable", "hearth", "kitchen", "tower", "friend", "mind", "send", "<|im_end|>")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Return the tokenizer of the preset, fetched without the model's weights."""
    layout = Layout.from_environment({"HEARTH_WORKSPACE": str(tmp_path_factory.mktemp("home"))})
    source = load_preset("smollm2-135m").source("smollm2-135m")
    held = fetch_model(replace(source, weights=False), layout.models, weights=False)
    return AutoTokenizer.from_pretrained(held.path)


def hangman(draw: random.Random) -> tuple[Message, ...]:
    """Return a game: the user says letters, and the assistant the word as far as it is known."""
    word, said, messages = draw.choice(WORDS), set[str](), list[Message]()
    letters = draw.sample(sorted(set(word)), len(set(word)))
    for letter in letters:
        said.add(letter)
        seen = "".join(each if each in said else "_" for each in word)
        messages += [Message("user", letter), Message("assistant", seen)]
    return tuple(messages)


@pytest.mark.rotated
def test_every_turn_of_two_hundred_games_learns_to_stop(tokenizer):
    games = [hangman(random.Random(seed)) for seed in range(200)]
    examples = [Example(messages=game) for game in games]
    for game, tokens in zip(games, encode(tokenizer, examples), strict=True):
        answers = [message.content for message in game if message.role == "assistant"]
        stops = tokens.learned & (tokens.ids == tokenizer.eos_token_id)
        assert stops.sum() == len(answers)
        learned = tokenizer.decode(tokens.ids[tokens.learned])
        assert learned == "".join(f"{answer}<|im_end|>" for answer in answers)
