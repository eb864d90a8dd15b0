"""Where the answers stand in a rendered conversation, found by rendering it with marks in place.

A chat template says how it writes a message only by writing it. So the texts of a message are
replaced by marks, characters that occur nowhere else, and the conversation is rendered again: where
the two renderings differ, the template wrote that message. No text is searched for the words of a
message, since a question may contain an answer, and an answer a piece of the template.

A learned answer begins behind the template's prompt for it. It ends with the first token that stops
generation, which must come before the next message. Pure: rendering is a function that is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hearth.data.findings import Problem
from hearth.data.messages import Message

Render = Callable[[Sequence[Message], bool], str]
"""Renders messages, with or without the prompt for the next answer. May raise `Problem`."""

_FIRST_MARK = 0xF0000  # the first character of Unicode's planes for private use
_TAGS = re.compile("(<think>|</think>)")
_CONTENT, _THOUGHT, _ARGUMENTS = "content", "thought", "arguments"

HIDDEN_SYSTEM = "system messages that the chat template does not show"
HIDDEN_THOUGHTS = "thoughts that the chat template leaves out"


@dataclass(frozen=True)
class Region:
    """The characters `start` to `stop` of a rendered conversation that one message became.

    `shown` names the parts of the message that the template wrote: `content`, `thought`, and the
    names of called functions. `glue` is the template's text between them.
    """

    start: int
    stop: int
    shown: frozenset[str]
    glue: str = ""


@dataclass(frozen=True)
class AnswerSpan:
    """The characters `start` to `stop` of the answer in the `message` of that number, from 0.

    The last of them are the token `end`.
    """

    message: int
    start: int
    stop: int
    end: str


class Ends:
    """The tokens that can end an answer, as they are written.

    Args:
        stops: those that stop generation.
        special: all special tokens.
        last_resort: the one that ends the last answer if the template writes none.
    """

    def __init__(self, stops: Sequence[str], special: Sequence[str], last_resort: str) -> None:
        self.last_resort = last_resort
        self._stops = re.compile(one_of(stops))
        self._special = re.compile(rf"\s*({one_of(special)})")

    def find(self, text: str, behind: int, limit: int, calls: bool) -> tuple[int, str] | None:
        """Return where the first end in `text` from `behind` to `limit` is over, and that end.

        Where nothing stops generation, it is the special token right behind the answer, unless that
        `calls`: the text behind the last argument belongs to the call.
        """
        if found := self._stops.search(text, behind, limit):
            return found.end(), found[0]
        if not calls and (found := self._special.match(text, behind, limit)):
            return found.end(), found[1]
        return None


def one_of(tokens: Sequence[str]) -> str:
    """Return a pattern for any of `tokens` that prefers the longer of two with equal starts."""
    return "|".join(map(re.escape, sorted(tokens, key=lambda token: (-len(token), token))))


@dataclass(frozen=True)
class Chat:
    """A rendered conversation up to the end of its last learned answer.

    Attributes:
        text: the rendering.
        answers: the answers that carry loss.
        regions: the text of each message; those behind the end of `text` are of no use.
        notes: remarks for the user, such as a thought that the template leaves out.
    """

    text: str
    answers: tuple[AnswerSpan, ...]
    regions: tuple[Region, ...]
    notes: tuple[str, ...] = ()


def find_answers(
    messages: Sequence[Message],
    render: Render,
    ends: Ends,
    generated: Sequence[tuple[int, int]] = (),
) -> Chat:
    """Render `messages` and find the answers that carry loss.

    `generated` are the stretches of the rendering that the template itself marks as generated.

    Raises `Problem` if the template hides a message, or writes no end after an answer.
    """
    text = render(messages, False)
    regions = regions_of(messages, render, text)
    for number, (message, region) in enumerate(zip(messages, regions, strict=True), start=1):
        _check_shown(number, message, region)
    notes, answers = _left_out(messages, regions), list[AnswerSpan]()
    for number, message in enumerate(messages):
        if not message.is_learned:
            continue
        region, last = regions[number], number + 1 == len(messages)
        start, unseen = _start(messages, number, render, text, regions)
        for first, stop in generated:
            if first <= region.stop and region.start <= stop:
                start, unseen = min(first, region.start), ""
        others = regions[:number] + regions[number + 1 :]
        limit = min(
            (each.start for each in others if each.shown and each.start >= region.stop),
            default=len(text),
        )
        if found := ends.find(text, region.stop, limit, bool(message.calls)):
            answers.append(AnswerSpan(number, start, *found))
        elif last:
            text, end = _closed(messages, render, text, region.stop, ends)
            answers.append(AnswerSpan(number, start, len(text), end))
        else:
            raise Problem(
                f"the model's chat template writes no end after the answer in message "
                f"{number + 1}, so the model could not learn to stop there; name the token that "
                "ends it as eos_token_id in the model's generation_config.json, or give each "
                "conversation one answer"
            )
        if unseen.strip() and not any(each.is_learned for each in messages[number + 1 :]):
            notes.append(f"chat prompts for an answer with {unseen!r}, which these lack")
    text = text[: answers[-1].stop if answers else 0]
    return Chat(text, tuple(answers), tuple(regions), tuple(notes))


def text_behind(messages: Sequence[Message], render: Render) -> str:
    """Return the text that `render` writes behind the last of `messages`.

    Raises `Problem` if it hides that message.
    """
    text = render(messages, False)
    region = regions_of(messages, render, text)[-1]
    _check_shown(len(messages), messages[-1], region)
    return text[region.stop :]


def shows(messages: Sequence[Message], render: Render) -> bool:
    """Return whether `render` shows all texts of the last of `messages`, thoughts and calls too."""
    try:
        text = render(messages, False)
        region = _region(messages, len(messages) - 1, render, text, False)
    except Problem:
        return False
    _, marks = _with_marks(messages[-1], _FIRST_MARK)
    names = {call["name"] for call in messages[-1].calls}
    return region.shown >= {part for part, _ in marks.values()} | names


def regions_of(
    messages: Sequence[Message], render: Render, text: str, prompt: bool = False
) -> list[Region]:
    """Find each of `messages` in `text`, the rendering with or without `prompt`.

    Raises `Problem` if the template writes another text than a message's.
    """
    return _all_plain(messages, render, text, prompt) or [
        _region(messages, number, render, text, prompt) for number in range(len(messages))
    ]


def _first_mark(text: str) -> int:
    """Return the code of the first of the characters that do not occur in `text`."""
    first = max(_FIRST_MARK, ord(max(text, default=" ")) + 1)
    if first > 0x10F000:
        raise Problem("it holds characters of Unicode's last plane for private use; remove them")
    return first


def _all_plain(
    messages: Sequence[Message], render: Render, text: str, prompt: bool
) -> list[Region] | None:
    """Return the regions of messages that have nothing but a content, by rendering once.

    None if the template does more than to put texts around each content: if `text` is not that
    rendering with each content, with or without the white space around it, in place of its mark.
    """
    if any(each.thought or each.calls or _thought_and_answer(each)[0] for each in messages):
        return None
    first = _first_mark(text)
    marks = [chr(first + number) for number in range(len(messages))]
    changed = [replace(each, content=mark) for each, mark in zip(messages, marks, strict=True)]
    try:
        before, *pieces = re.split(f"([{marks[0]}-{marks[-1]}])", render(changed, prompt))
    except Problem:
        return None
    if sorted(pieces[::2]) != marks or not text.startswith(before):
        return None
    regions, at = dict[int, Region](), len(before)
    for mark, behind in zip(pieces[::2], pieces[1::2], strict=True):
        number = ord(mark) - first
        content = messages[number].content
        for written in (content, content.strip()):
            if text.startswith(written + behind, at):
                break
        else:
            return None
        regions[number] = Region(at, at + len(written), frozenset([_CONTENT]))
        at += len(written) + len(behind)
    return [regions[number] for number in range(len(messages))] if at == len(text) else None


def _region(
    messages: Sequence[Message], number: int, render: Render, text: str, prompt: bool
) -> Region:
    """Find message `number` in `text`, the rendering with or without `prompt`.

    Raises `Problem` if the template writes another text than the message's.
    """
    message = messages[number]

    def with_other(changed: Message) -> str:
        return render([*messages[:number], changed, *messages[number + 1 :]], prompt)

    first = _first_mark(text)
    changed, marks = _with_marks(message, first)
    other = with_other(changed)
    start = _common(text, other)
    rest = _common(text[start:][::-1], other[start:][::-1])
    written, marked = text[start : len(text) - rest], other[start : len(other) - rest]
    glue = marked.translate(dict.fromkeys(map(ord, marks)))
    shown = {part for mark, (part, _) in marks.items() if mark in marked}
    if message.calls:
        # Templates may repeat the name of a call before its result, so it tells no place.
        names = {chr(first + at): call["name"] for at, call in enumerate(message.calls)}
        renamed = zip(message.calls, names, strict=True)
        calls = tuple({**call, "name": name} for call, name in renamed)
        named = with_other(replace(message, calls=calls))
        shown |= {name for mark, name in names.items() if mark in named}
    else:  # arguments are written as JSON, or in a way of the template's own; all else as it is
        for mark, (_, value) in marks.items():
            marked = marked.replace(mark, value)
        if "".join(marked.split()) != "".join(written.split()):
            raise Problem(
                f"the model's chat template writes another text than message {number + 1} has, so "
                "Hearth cannot tell where it begins and ends; write that message otherwise"
            )
    return Region(start, start + len(written), frozenset(shown), glue)


def _with_marks(message: Message, first: int) -> tuple[Message, dict[str, tuple[str, str]]]:
    """Return `message` with marks for its texts, and for each mark its part and the text.

    The marks are the characters from `first` on. Tags around a thought in an answer stay, since
    templates search for them.
    """
    marks: dict[str, tuple[str, str]] = {}

    def mark(part: str, text: str) -> str:
        made = chr(first + len(marks))
        marks[made] = part, text
        return made

    def leaves(value: Any) -> Any:
        if isinstance(value, Mapping) and value:
            return {name: leaves(each) for name, each in value.items()}
        if isinstance(value, list | tuple) and value:
            return [leaves(each) for each in value]
        return mark(_ARGUMENTS, str(value))

    thought = mark(_THOUGHT, message.thought) if message.thought.strip() else message.thought
    head, answer = _thought_and_answer(message)
    content = "".join(
        piece if place % 2 or not piece.strip() else mark(_THOUGHT, piece)
        for place, piece in enumerate(_TAGS.split(head))
    )
    content += mark(_CONTENT, answer) if answer.strip() or not message.calls else answer
    calls = tuple(
        # A call without arguments has one, so that there is something to mark.
        {**call, "arguments": leaves(call["arguments"] or {"none": ""})}
        for call in message.calls
    )
    return replace(message, content=content, thought=thought, calls=calls), marks


def _thought_and_answer(message: Message) -> tuple[str, str]:
    """Split a content behind the last tag that ends a thought; only answers have thoughts."""
    if message.role != "assistant":
        return "", message.content
    thought, tag, answer = message.content.rpartition("</think>")
    return thought + tag, answer


def _common(one: str, other: str) -> int:
    """Return the length of the longest common beginning of two texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _check_shown(number: int, message: Message, region: Region) -> None:
    """Raise `Problem` if the template hides what `message`, the `number`-th, must show."""
    if hidden := [call["name"] for call in message.calls if call["name"] not in region.shown]:
        raise Problem(
            f"the model's chat template does not show the call of {hidden[0]} in message {number}; "
            "choose a model that calls functions, or leave such conversations out"
        )
    _, words = _thought_and_answer(message)
    if message.role == "system" or not words.strip() or _CONTENT in region.shown:
        return
    if message.role == "assistant":
        raise Problem(
            "the model's chat template does not show where the answer in message "
            f"{number} begins; choose a model with another template"
        )
    raise Problem(
        f"the model's chat template does not show message {number}, of role {message.role}; choose "
        "a model that has this role, or leave such conversations out"
    )


def _left_out(messages: Sequence[Message], regions: Sequence[Region]) -> list[str]:
    """Return remarks on the system messages and thoughts that the template does not show."""
    notes = []
    for message, region in zip(messages, regions, strict=True):
        if message.role == "system" and message.content.strip() and _CONTENT not in region.shown:
            notes.append(HIDDEN_SYSTEM)
        if message.role == "assistant" and _THOUGHT not in region.shown:
            _, marks = _with_marks(message, _FIRST_MARK)
            if any(part == _THOUGHT for part, _ in marks.values()):
                notes.append(HIDDEN_THOUGHTS)
    return notes


def _start(
    messages: Sequence[Message],
    number: int,
    render: Render,
    text: str,
    regions: Sequence[Region],
) -> tuple[int, str]:
    """Return where answer `number` starts, and what the prompt for it has that `text` lacks.

    It starts behind the template's prompt for it, or with its own words where no prompt can be
    found: there is none for an answer to nothing.
    """
    begin = regions[number].start
    if not number:
        return begin, ""
    before = messages[:number]
    try:
        prompted = render(before, True)
        if text.startswith(prompted) and len(prompted) <= begin:
            return len(prompted), ""
        # Some templates move the system message, or open a thought in the prompt only.
        behind = _region(before, number - 1, render, prompted, True).stop
    except Problem:
        return begin, ""
    prompt = prompted[behind:]
    previous = max((each.stop for each in regions if each.stop <= begin), default=0)
    written = text[previous:begin]
    for opening in (prompt, prompt.rstrip()):  # `<think>\n` in the prompt, `<think></think>` here
        if opening and written.startswith(opening):
            return previous + len(opening), ""
    return begin, prompt.removeprefix(written) if prompt.startswith(written) else ""


def _closed(
    messages: Sequence[Message], render: Render, text: str, behind: int, ends: Ends
) -> tuple[str, str]:
    """Return `text` with an end after its last answer, which is over at `behind`, and that end.

    Some templates have none but the beginning of the next message, which stops generation.
    """
    mark = chr(_first_mark(text))
    calls = bool(messages[-1].calls)
    followed = [*messages, Message("tool" if calls else "user", mark)]
    try:
        longer = render(followed, False)
        over = _region(followed, len(messages) - 1, render, longer, False).stop
    except Problem:
        longer, over = "", 0
    if mark in longer and (found := ends.find(longer, over, longer.index(mark), calls)):
        return text[:behind] + longer[over : found[0]], found[1]
    return text.rstrip() + ends.last_resort, ends.last_resort
