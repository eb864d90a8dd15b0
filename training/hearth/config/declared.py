"""The values in a model's JSON files that libraries take as they are: their types and sizes. Pure.

A model's folder can come from any source. A wrong type would end in an error of a library that
names no file, a wrong size would never end, and some names would be fetched from the Hub as code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

CONFIG, TOKENIZER_CONFIG = "config.json", "tokenizer_config.json"
INDEX = "model.safetensors.index.json"

_MOST_LAYERS = 1024
_MOST_MODULES = 1 << 16
"""Experts of all layers; the largest models have a third of it."""
_MOST_SIZE = (1 << 31) - 1

_LAYERS = re.compile(r"(^|_)n?_?(layers?|depths?|blocks|stages?)$")
_EXPERTS = re.compile(r"(^|_)experts$")
_SIZES = re.compile(r"size|dim|embd|inner|heads|position|length|vocab|rank|width|channels")
_IMPLEMENTATION = re.compile(r"_implementation(_internal)?$")

_CLASS = re.compile(r"([\w.-]+/[\w.-]+--)?[A-Za-z_][\w-]*(\.[A-Za-z_]\w*)+")
_PLAIN = re.compile(r"[\w|]*")
_WEIGHTS = re.compile(r"[\w.-]+\.safetensors")


def problems(files: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the faults of a model's JSON files, given by name; each sentence names the file."""
    checks = {
        CONFIG: (_own_code, _modules, _sizes, _implementations),
        TOKENIZER_CONFIG: (_own_code, _length),
        INDEX: (_weights,),
    }
    return [
        f"{name}: {problem}; correct it, or copy the file again"
        for name, content in files.items()
        for check in checks.get(name, ())
        for problem in check(content)
    ]


def _own_code(content: Mapping[str, Any]) -> Iterator[str]:
    """Find an `auto_map` that does not name classes in files."""
    named = content.get("auto_map")
    if named is None:
        return
    if not isinstance(named, dict):
        yield f"auto_map is {_shown(named)}, and a mapping of classes is wanted"
        return
    for key, value in named.items():
        for each in value if isinstance(value, list) else [value]:
            if each is not None and not (isinstance(each, str) and _CLASS.fullmatch(each)):
                yield (
                    f"auto_map has {_shown(each)} as {_shown(key)}, and the class of a file in "
                    "this folder is wanted, such as modeling_x.Model"
                )


def _modules(content: Mapping[str, Any]) -> Iterator[str]:
    """Find more layers or experts than any model has."""
    for part in _parts(content):
        layers, experts = (_largest(part, names) for names in (_LAYERS, _EXPERTS))
        if layers[1] > _MOST_LAYERS:
            yield f"{layers[0]} is {_shown(layers[1])}, and no model has over {_MOST_LAYERS} layers"
        elif max(layers[1], 1) * experts[1] > _MOST_MODULES:
            yield f"{experts[0]} is {_shown(experts[1])}, which no model has in each of its layers"


def _sizes(content: Mapping[str, Any]) -> Iterator[str]:
    """Find sizes beyond those that any model has."""
    for part in _parts(content):
        name, size = _largest(part, _SIZES)
        if size > _MOST_SIZE:
            yield f"{name} is {_shown(size)}, beyond the size of any model"


def _implementations(content: Mapping[str, Any]) -> Iterator[str]:
    """Find an implementation that would be fetched from the Hub, as code, and run."""
    for part in _parts(content):
        for name, value in part.items():
            if not _IMPLEMENTATION.search(name):
                continue
            for each in value.values() if isinstance(value, dict) else [value]:
                if each is not None and not (isinstance(each, str) and _PLAIN.fullmatch(each)):
                    yield (
                        f"{name} is {_shown(each)}, which is none of Transformers' own; code from "
                        "the Hub is not run"
                    )


def _length(content: Mapping[str, Any]) -> Iterator[str]:
    """Find a `model_max_length` that is no number of tokens."""
    most = content.get("model_max_length")
    if most is None or type(most) in (int, float):
        return
    yield f"model_max_length is {_shown(most)}, and a number of tokens is wanted"


def _weights(content: Mapping[str, Any]) -> Iterator[str]:
    """Find tensors whose file is none of this folder."""
    listed = content.get("weight_map")
    if not isinstance(listed, dict):
        yield f"weight_map is {_shown(listed)}, and the file of each tensor is wanted"
        return
    for tensor, file in listed.items():
        if not (isinstance(file, str) and _WEIGHTS.fullmatch(file)):
            yield (
                f"weight_map has {_shown(file)} for the tensor {_shown(tensor)}, and the name of a "
                "*.safetensors file in this folder is wanted"
            )
            return  # the others are likely the same


def _parts(content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a configuration and those of its parts, such as `text_config`."""
    open_parts: list[Any] = [content]
    while open_parts:
        part = open_parts.pop()
        if isinstance(part, Mapping):
            yield {str(name): value for name, value in part.items()}
            open_parts += part.values()


def _largest(part: Mapping[str, Any], names: re.Pattern[str]) -> tuple[str, int | float]:
    """Return the name and value of the largest number under such a name; ('', 0) for none.

    Of a list, such as the depths of stages, the numbers count together.
    """
    listed = {
        name: value if isinstance(value, list) else [value]
        for name, value in part.items()
        if names.search(name)
    }
    found = {
        name: sum(each for each in values if type(each) in (int, float))
        for name, values in listed.items()
    }
    return max(found.items(), key=lambda each: each[1], default=("", 0))


def _shown(value: Any) -> str:
    """Return a value of any kind in a few characters."""
    text = ascii(value)
    return text if len(text) < 60 else f"{text[:57]}…"
