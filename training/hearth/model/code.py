"""Python code that comes with a model: whether the model needs it, and whether it may run.

Transformers has the code of the model types that it knows, and Hearth uses that. A model of any
other type names code in its folder (`auto_map` in config.json; transformers, "Customizing
models"). That code would run as the user on every node, so it requires `trust_remote_code`. No
torch here; transformers is imported only if a model names code at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hearth.base.errors import ModelError
from hearth.base.files import read_object

PATTERNS = ("*.py", "*.model", "*.tiktoken")
"""Additional files that a model with its own code may need: code and tokenizer data."""


def code_of(config: Mapping[str, Any], *more: Mapping[str, Any]) -> list[str]:
    """Return the code files that a model needs to run; for most models none.

    `config` is the content of its config.json, `more` that of other files that can name code. The
    names are such as `modeling_x.py`, or `owner/name--modeling_x.py` in another repository.
    """
    if not config.get("auto_map") or _is_known(str(config.get("model_type"))):
        return []
    named: list[Any] = []
    for each in (config, *more):
        classes = each.get("auto_map")  # of another type, see `hearth.config.declared`
        for value in classes.values() if isinstance(classes, Mapping) else ():
            named += value if isinstance(value, list) else [value]
    # A class is named `modeling_x.Class`; a tokenizer without a fast version [Class, null].
    return sorted({f"{name.rpartition('.')[0]}.py" for name in named if isinstance(name, str)})


def code_in(folder: Path) -> list[str]:
    """Return the code files that the model in `folder` needs to run (see `code_of`)."""
    names = ("config.json", "tokenizer_config.json")
    return code_of(*(read_object(folder / name) or {} for name in names))


def may_run(allowed: bool, folder: Path) -> bool:
    """Return whether code in `folder` should run: it is `allowed`, and the model needs it."""
    return allowed and bool(code_in(folder))


def code_problems(named: list[str], model: str, allowed: bool, folder: Path | None) -> list[str]:
    """Return the problems that keep a model's own code from running; [] without any.

    `named` are the code files (see `code_of`); `folder` is given if the model is on this node.
    """
    if not named:
        return []
    files = ", ".join(named)
    if not allowed:
        return [
            f"{model}: Transformers does not know this kind of model; it needs Python code that "
            f"comes with it ({files}) and would run as your user on every node. Read that code, "
            "then allow it with trust_remote_code=on (by hand --trust-remote-code), or choose "
            "another model"
        ]
    if elsewhere := [name for name in named if "--" in name]:
        return [
            f"{model}: its code is in another repository ({', '.join(elsewhere)}), which can "
            "change at any time; copy model and code into one folder, remove the prefixes up to "
            "'--' from auto_map in its config.json, and give that folder"
        ]
    return [
        f"{folder / name}: this file of the model's own code is missing; copy it there"
        for name in named
        if folder and not (folder / name).is_file()
    ]


def code_to_run(folder: Path, model: str, allowed: bool) -> list[str]:
    """Return the code files that the model in `folder` needs, after checking that they can run.

    Raises `ModelError` with the problems if they cannot (see `code_problems`).
    """
    named = code_in(folder)
    if problems := code_problems(named, model, allowed, folder):
        raise ModelError(*problems)
    return named


def code_warning(model: str) -> str:
    """Return the warning to show before a run that allows a model's own code."""
    return (
        f"trust_remote_code: Python code that comes with {model} runs as your user on every node, "
        "if Transformers does not know this kind of model. Have you read it?"
    )


def _is_known(model_type: str) -> bool:
    """Return whether transformers has the code of this model type."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return model_type in CONFIG_MAPPING_NAMES
