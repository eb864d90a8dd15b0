"""Python code that comes with a model: whether the model needs it, and whether it may run.

Transformers has the code of the kinds of models that it knows, and Hearth uses that. A model of
any other kind names code in its folder (`auto_map` in config.json; transformers, "Customizing
models"), which runs as the user on every node: only where `trust_remote_code` was set. No torch
here; transformers itself is asked only where a model names code at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hearth.base.errors import ModelError
from hearth.base.files import read_object

PATTERNS = ("*.py", "*.model", "*.tiktoken")
"""Files that such a model may need beside those of every model: code, and what its tokenizer reads.
"""


def code_of(config: Mapping[str, Any], *more: Mapping[str, Any]) -> list[str]:
    """Return the code without which a model does not run, as it names it; mostly nothing.

    Args:
        config: what its config.json holds.
        more: what other files of it hold that can name code (tokenizer_config.json).

    Returns:
        Names of files, as `modeling_x.py`, or `owner/name--modeling_x.py` of another repository.
    """
    if not config.get("auto_map") or _is_known(str(config.get("model_type"))):
        return []
    named: list[Any] = []
    for each in (config, *more):
        for value in dict(each.get("auto_map") or {}).values():
            named += value if isinstance(value, list) else [value]
    # A class is named as `modeling_x.Class`; a tokenizer that has no fast form as [Class, null].
    return sorted({f"{name.rpartition('.')[0]}.py" for name in named if isinstance(name, str)})


def code_in(folder: Path) -> list[str]:
    """Return the code without which the model in `folder` does not run (see `code_of`)."""
    names = ("config.json", "tokenizer_config.json")
    return code_of(*(read_object(folder / name) or {} for name in names))


def may_run(allowed: bool, folder: Path) -> bool:
    """Return whether code in `folder` is to run: it is `allowed`, and the model needs it."""
    return allowed and bool(code_in(folder))


def code_problems(named: list[str], model: str, allowed: bool, folder: Path | None) -> list[str]:
    """Return why the code that a model needs cannot run, if it cannot.

    Args:
        named: the code (see `code_of`).
        model: what to call the model: its Hub id or folder.
        allowed: whether `trust_remote_code` is set.
        folder: where the model lies, if it does already.
    """
    if not named:
        return []
    files = ", ".join(named)
    if not allowed:
        return [
            f"{model}: Transformers does not know this kind of model; it runs only with Python "
            f"code that comes with it ({files}), as your user on every node. Read that code, then "
            "let it run with trust_remote_code=true (by hand --trust-remote-code), or choose "
            "another model"
        ]
    if elsewhere := [name for name in named if "--" in name]:
        return [
            f"{model}: its code lies in another repository ({', '.join(elsewhere)}), which can "
            "change at any time; copy model and code into one folder, take what stands before "
            "'--' out of auto_map in its config.json, and give that folder"
        ]
    return [
        f"{folder / name}: this file of the model's own code is missing; copy it there"
        for name in named
        if folder and not (folder / name).is_file()
    ]


def code_to_run(folder: Path, model: str, allowed: bool) -> list[str]:
    """Return the code without which the model in `folder` does not run, known to be there.

    Raises `ModelError` with why it cannot run (see `code_problems`).
    """
    named = code_in(folder)
    if problems := code_problems(named, model, allowed, folder):
        raise ModelError(*problems)
    return named


def code_warning(model: str) -> str:
    """Return what a person should be told, before anything, of a run that lets such code run."""
    return (
        f"trust_remote_code: Python code that comes with {model} runs as your user on every node, "
        "if Transformers does not know this kind of model. Have you read it?"
    )


def _is_known(model_type: str) -> bool:
    """Return whether transformers has the code of this kind of models."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return model_type in CONFIG_MAPPING_NAMES
