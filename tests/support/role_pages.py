"""The options of each role, and the words of the playbooks, as tables in READMEs.

They are generated from argument_specs: run `python -m tests.support.role_pages`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from hearth.base.errors import HearthError
from hearth.base.text import on_off
from hearth_controller.inventory.variables import SPECS

COMMAND = "python -m tests.support.role_pages"

_BEGIN = f"<!-- Made from {SPECS}; do not edit:\n     {COMMAND} -->\n"
_END = "<!-- made up to here -->\n"
_PART = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)
_MARKUP = re.compile(r"\b[CIMOV]\(([^)]*)\)")  # Ansible's documentation markup


def with_options(readme: str, specs: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a README with its `argument_specs` rendered between the marks, there once."""
    table = "\n".join(_lines(specs))
    text, places = _PART.subn(lambda _: f"{_BEGIN}\n{table}\n{_END}", readme)
    if places != 1:
        marks = f"{_BEGIN}{_END}"
        raise HearthError(f"the marks of the table are missing or not single; put in:\n{marks}")
    return text


def page_of(folder: Path) -> str:
    """Return the up-to-date README text of a role's folder, or of the folder of playbooks."""
    specs = yaml.safe_load((folder / SPECS).read_text(encoding="utf-8"))["argument_specs"]
    readme = folder / "README.md"
    try:
        return with_options(readme.read_text(encoding="utf-8"), specs)
    except HearthError as error:
        raise HearthError(f"{readme}: {error}") from error


def _lines(specs: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    of_role = {"main", "options"} & specs.keys()
    alike: dict[str, list[str]] = {}
    for entry, spec in specs.items():
        table = "\n".join(_table(spec.get("options") or {}))
        if of_role:
            if entry not in ("main", "options"):
                yield f"With `tasks_from: {entry}` ({spec['short_description'].lower()}):\n"
            yield f"{table}\n"
        else:  # playbooks with the same words share a table
            alike.setdefault(table, []).append(f"**{entry}**: {spec['short_description']}")
    for table, heads in alike.items():
        yield "  \n".join(heads) + f"\n\n{table}\n"


def _table(options: Mapping[str, Any]) -> Iterator[str]:
    if not options:
        yield "There are no options."
        return
    yield "| option | type | default | |\n|---|---|---|---|"
    for name, option in options.items():
        description = _markdown(option["description"])
        yield f"| `{name}` | {_type(option)} | {_default(option)} | {description} |"


def _type(option: Mapping[str, Any]) -> str:
    name = option.get("type", "str")
    if name == "list":
        name = f"list of {option.get('elements', 'str')}"
    choices = ", ".join(f"`{choice}`" for choice in option.get("choices", ()))
    return f"{name}: {choices}" if choices else name


def _default(option: Mapping[str, Any]) -> str:
    """Return the default: a value as code, or the sentence that describes it."""
    value = option.get("default")
    if option.get("required") or value is None:
        return "required" if option.get("required") else "–"
    if value in ("", [], {}):
        return "empty"
    if isinstance(value, list):
        return f"`{','.join(value)}`"
    text = on_off(value) if isinstance(value, bool) else str(value)
    return _markdown(text) if " " in text else f"`{text}`"


def _markdown(text: str | list[str]) -> str:
    """Return Ansible's documentation text as one cell of Markdown."""
    words = " ".join(text) if isinstance(text, list) else text
    return _MARKUP.sub(r"`\1`", " ".join(words.split())).replace("|", r"\|")


def folders_in(root: Path) -> list[Path]:
    """Return the folders below a checkout that declare options: the roles, and the playbooks."""
    paths = [*root.glob(f"roles/*/{SPECS}"), *root.glob(f"playbooks/{SPECS}")]
    return sorted(path.parents[1] for path in paths)


def main(root: Path = Path()) -> None:
    """Write all tables, and name those changed; exit with the reason if one has no place."""
    try:
        pages = {folder / "README.md": page_of(folder) for folder in folders_in(root)}
    except HearthError as error:
        sys.exit(f"hearth: error: {error}")
    for path, text in pages.items():
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path)


if __name__ == "__main__":
    main()
