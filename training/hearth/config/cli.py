"""The command line of the trainer, made from the table of settings."""

from __future__ import annotations

import argparse
import os
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from hearth.base.errors import ConfigError, did_you_mean
from hearth.config.presets import SMALL
from hearth.config.problems import RENAMED, elsewhere
from hearth.config.resolve import read_settings_file
from hearth.config.settings import Settings, shown, takes_switch

_DESCRIPTION = """\
Train a model, with LoRA or whole, on this computer or, under torchrun or srun, on many.

Alone:    python training/train_distributed.py
          python training/train_distributed.py --model llama2-7b --dataset my.jsonl
By hand:  torchrun --nproc-per-node 2 training/train_distributed.py --model smollm2-135m
Slurm:    srun --nodes 3 python training/train_distributed.py --model smollm2-135m
The play `train.yml` starts this script on every node with --run-file."""


MOST_EXAMPLES = 1000
"""Examples that a preview shows at most."""


@dataclass(frozen=True)
class CommandLine:
    """The parsed command line: settings as strings, and the options of the script itself."""

    given: dict[str, Any]
    config: Path | None
    run_file: Path | None
    dry_run: bool
    list_models: bool
    preview: int | None


def _alternatives(schema: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the words, and the placeholders of other values, that fit a setting's JSON schema."""
    names = {"integer": "N", "number": "X", "array": "A,B,…", "object": "A=B,…", "string": "TEXT"}
    words: list[str] = []
    others: list[str] = []
    for kind in schema.get("anyOf", [schema]):
        if listed := kind.get("enum", [kind["const"]] if "const" in kind else []):
            words += listed
        elif kind["type"] == "boolean":
            words += ["on", "off"]
        elif kind["type"] in names:
            others.append(names[kind["type"]])
    return words, others


def examples_in(text: str) -> int:
    """Return the number of examples to preview. Raises `argparse.ArgumentTypeError`."""
    if not (text.isdecimal() and 0 < int(text[:6]) <= MOST_EXAMPLES):
        raise argparse.ArgumentTypeError(
            f"{text!r} cannot be used; a number up to {MOST_EXAMPLES} is wanted"
        )
    return int(text)


def _parser() -> argparse.ArgumentParser:
    """Return the parser with one option per setting, under the settings' own headings."""
    parser = argparse.ArgumentParser(
        prog="train_distributed.py",
        usage="%(prog)s [--model MODEL] [setting ...]",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings from a YAML file")
    parser.add_argument("--dry-run", action="store_true", help="print the settings, start nothing")
    parser.add_argument(
        "--preview",
        type=examples_in,
        nargs="?",
        const=5,
        metavar="N",
        help="print the first N examples (5) as they will be trained, and train nothing",
    )
    parser.add_argument("--list-models", action="store_true", help="print the presets")
    parser.add_argument(
        "--run-file", type=Path, metavar="FILE", help="train the run that this run.yml describes"
    )
    add_settings(parser)
    return parser


def add_settings(
    parser: argparse.ArgumentParser, *, without: Container[str] = (), by_hand: bool = True
) -> None:
    """Add one option per setting to `parser`, under the settings' own headings.

    A setting that is not given is not in the namespace either. An action's `words` are those that
    the setting accepts. `by_hand` is for this script, whose options pass through torchrun.
    """
    headings: dict[str, Any] = {}
    schemas = Settings.model_json_schema(mode="serialization")["properties"]
    for name, field in Settings.model_fields.items():
        group = field.json_schema_extra["group"]
        if name in without:
            continue
        if group not in headings:
            headings[group] = parser.add_argument_group(group)
        options = ["--" + name.replace("_", "-")]
        if name == "run" and by_hand:
            # torchrun reads --run as an abbreviation of its --run-path, even after the script.
            options.append("--run-name")
            default = " (under torchrun write --run-name)"
        elif field.is_required():
            default = f" (default by hand: {SMALL})" if by_hand else ""
        elif field.default in (None, (), {}):
            default = ""
        else:
            default = f" (default: {shown(field.default)})"
        words, others = _alternatives(schemas[name])
        shapes = [*words, *others]
        # A switch without a value is on.
        bare = {"nargs": "?", "const": "on"} if takes_switch(field.annotation) else {}
        action = headings[group].add_argument(
            *options,
            dest=name,
            default=argparse.SUPPRESS,
            help=f"{field.description}{default}".replace("%", "%%"),
            metavar="{" + ",".join(shapes) + "}" if len(shapes) > 1 else shapes[0],
            **bare,
        )
        action.words = words


def parse_command_line(arguments: Sequence[str] | None = None) -> CommandLine:
    """Parse `arguments` (by default this process's command line).

    `--help` prints and exits. Raises `ConfigError` for options that do not exist.
    """
    parser = _parser()
    typed, unknown = parser.parse_known_args(arguments)
    if unknown:
        raise ConfigError(*unknown_options(parser, unknown))
    given = vars(typed)
    own = {
        key: given.pop(key) for key in ("config", "run_file", "dry_run", "list_models", "preview")
    }
    if own["run_file"] and (given or own["config"]):
        raise ConfigError("--run-file describes the whole run; leave out every other setting")
    return CommandLine(given=given, **own)


def unknown_options(parser: argparse.ArgumentParser, unknown: Sequence[str]) -> list[str]:
    """Return findings on words of a command line that `parser` does not know."""
    options = [option for action in parser._actions for option in action.option_strings]
    if wrong := [word for word in unknown if word.startswith("-")]:
        return [_unknown_option(word, options) for word in wrong]
    name, equals, value = unknown[0].partition("=")
    option = "--" + name.replace("_", "-")
    cure = (
        f"did you mean {option} {quote(value)}"
        if equals and option in options
        else "put a pattern such as 'data/*.bin' in quotes"
    )
    return [f"{unknown[0]} belongs to no option; {cure}"]


def _unknown_option(word: str, options: Sequence[str]) -> str:
    """Return the finding on an option that does not exist."""
    option = word.split("=")[0]
    name = option.removeprefix("--no-").removeprefix("--").replace("-", "_")
    present = RENAMED.get(name, name)
    known = [each.removeprefix("--").replace("-", "_") for each in options]
    field = Settings.model_fields.get(present)
    if option.startswith("--no-") and field and takes_switch(field.annotation):
        return f"there is no option {word}; write --{present.replace('_', '-')} off"
    if present != name:
        return f"there is no option {word}; it is called --{present.replace('_', '-')} now"
    if setting := elsewhere(name, known):
        cure = setting.replace("_", "-").replace("=", " ")
        return f"there is no option {word}; Hearth's is --{cure}"
    return f"there is no option {word}{did_you_mean(option, options)}"


def with_small_model(typed: CommandLine) -> tuple[dict[str, Any], str]:
    """Return the typed settings with a model, and a notice for the user if none was named.

    Without a model, in the settings or in their file, a run by hand takes the small preset.

    Raises `ConfigError` if the settings file cannot be read.
    """
    from_file = read_settings_file(typed.config) if typed.config else {}
    if {"model", "resume", "onto"} & {*typed.given, *from_file}:
        return typed.given, ""
    dataset = Settings.model_fields["dataset"].default
    dataset = typed.given.get("dataset", from_file.get("dataset", dataset))
    notice = (
        f"no model is named: training the small preset {SMALL} on {shown(dataset)}; --model takes "
        "another (--list-models)"
    )
    return {"model": SMALL, **typed.given}, notice


def rank_from_environment(local: bool = False) -> int:
    """Return this process's rank, or local rank, as torchrun sets it; 0 without torchrun."""
    return int(os.environ.get("LOCAL_RANK" if local else "RANK", "0"))
