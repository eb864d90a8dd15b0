"""Action plugin: the closing words of a run, from the files that were collected."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from hearth.config import read_run
from hearth_controller.runs.outcome import launches_of, silent, state_of
from hearth_controller.base.paths import as_typed
from hearth_controller.script.run import ScriptRun, read_script
from hearth.base.errors import ConfigError
from hearth_controller.report.repeat import variable
from hearth_controller.runs.story import Story, read_lines
from hearth.supervise.cause import ENDS
from hearth.base.text import duration

DOCUMENTATION = r"""
module: hearth_summary
short_description: What a run changed, where its files are and what to do next
options:
  run:
    description: Name of the run.
    type: str
    required: true
  folder:
    description: Folder of the run on the controller.
    type: path
    required: true
  ends:
    description: How the run ended on each node, as M(hearth_follow) returns it, by node.
    type: dict
    required: true
  playbook:
    description: How to call C(ansible-playbook) for the same inventory.
    type: str
    default: ansible-playbook
"""

_WIDTH, _LINES = 76, 4


def paragraph(text: str) -> list[str]:
    """Return `text` as a few lines, cut at a word if it is longer.

    What a model says can hold anything; nothing of it reaches the terminal as a command.
    """
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return textwrap.wrap(words, _WIDTH, max_lines=_LINES, placeholder=" …") or [""]


def table(rows: Iterable[tuple[str, str | list[str]]]) -> list[str]:
    """Return the lines of a table of words and what there is to say, in one line or several."""
    rows = list(rows)
    wide = max((len(word) for word, _ in rows), default=0)
    lines = []
    for word, said in rows:
        for part in [said] if isinstance(said, str) else said:
            lines.append(f"  {word:<{wide}}  {part}")
            word = ""
    return lines


def outcome(run: str, story: Story, ends: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the first line: how the run ended."""
    if story.steps:
        steps = f"{story.step} of {story.steps} steps"
    elif rank_0_known(ends):
        steps = "before its first step"
    else:
        steps = "how far it came is on its rank 0's node, which does not answer"
    took = f" in {duration(story.seconds)}" if story.seconds else ""
    match state_of(ends):
        case "finished":
            return f"{run} finished: {steps} on {', '.join(ends)}{took}"
        case "stopped":
            return f"{run} was stopped: {steps}{took}"
        case "lost":
            return f"{run} was lost from sight, and may still be under way: {steps}"
        case _:
            return f"{run} failed: {steps}"


def rank_0_known(ends: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether rank 0's node, which has the record, was there in the end."""
    return any(
        end.get("rank") == 0 and (end["state"] in ENDS or end.get("gone")) for end in ends.values()
    )


def next_command(
    state: str, run: str, playbook: str, kept: bool
) -> list[tuple[str, str | list[str]]]:
    """Return what to type next for a run that did not finish; `kept`: it can go on from something.

    What is lost from sight may still be under way: first somebody has to look.
    """
    if state == "lost":
        return [("look again", f"{playbook} playbooks/attach.yml -e run={run}")]
    if state == "finished" or not kept:
        return []
    return [("go on", f"{playbook} train.yml -e resume={run}")]


def script_outcome(run: str, script: ScriptRun, ends: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the first line for the run of a person's script, with the time since it was begun.

    Without that where it was launched more than once, with nobody knows what in between.
    """
    took, again = "", any(end.get("generation") for end in ends.values())
    last = max((str(end.get("since") or "") for end in ends.values()), default="")
    if last and not again:
        begun = datetime.fromisoformat(script.created)
        took = f" in {duration(max((datetime.fromisoformat(last) - begun).total_seconds(), 0))}"
    match state_of(ends):
        case "finished":
            return f"{run} finished: {script.program} on {', '.join(ends)}{took}"
        case "stopped":
            return f"{run} was stopped: {script.program}{took}"
        case "lost":
            return f"{run} was lost from sight, and may still be under way: {script.program}"
        case _:
            return f"{run} failed: {script.program}{took}"


def script_summary(
    script: ScriptRun,
    ends: Mapping[str, Mapping[str, Any]],
    folder: str,
    files: Iterable[str],
    playbook: str,
) -> str:
    """Return the closing words for the run of a person's script, as `summary` does."""
    files, state = set(files), state_of(ends)
    rows = interruptions(ends) + unseen(ends)
    rows += [(name, f"{folder}/{name}") for name in ("files", "logs") if name in files]
    rows += next_command(state, script.name, playbook, kept=True)
    if state == "failed":
        rows.append(what_happened(ends, folder))
    return "\n".join([script_outcome(script.name, script, ends), *table(rows)])


def what_happened(ends: Mapping[str, Mapping[str, Any]], folder: str) -> tuple[str, str]:
    """Return where to read why a run failed."""
    blamed = {(end.get("cause") or {}).get("node") for end in ends.values()}
    log = f"{blamed.pop()}.log" if len(blamed) == 1 and None not in blamed else "*.log"
    return "what happened", f"less {folder}/logs/{log}"


def interruptions(ends: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str | list[str]]]:
    """Return what ended a launch while the run went on, as rank 0's node has it on record."""
    told = [
        f"{cause['node']}: {cause['message'].splitlines()[0]}"
        for launch in launches_of(ends)
        if (cause := launch.get("cause")) and cause["kind"] != "node_back"
    ]
    if not told:
        return []
    more = [f"and {len(told) - _LINES} more"] if len(told) > _LINES else []
    lines = [line for words in told[:_LINES] for line in textwrap.wrap(words, _WIDTH)]
    return [("went on after", lines + more)]


def unseen(ends: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str | list[str]]]:
    """Return which nodes did not tell how a run ended that ended well."""
    lines = [line for node, why in silent(ends).items() for line in paragraph(f"{node}: {why}")]
    return [("not seen to its end", lines)] if lines else []


def summary(
    run: str,
    model: str,
    story: Story,
    ends: Mapping[str, Mapping[str, Any]],
    folder: str,
    files: Iterable[str],
    playbook: str,
) -> str:
    """Return the closing words of a run.

    `folder` is where its files are on the controller, as typed, and `files` which there are;
    `playbook` is the command that plays on the same inventory.
    """
    files = set(files)
    state = state_of(ends)
    rows: list[tuple[str, str | list[str]]] = []
    before, after = story.perplexity
    if before and after:
        rows.append(
            ("held-out perplexity", f"{before:.2f} → {after:.2f}  ({after / before - 1:+.0%})")
        )
    if (sample := story.sample) and state == "finished":
        rows.append(("held-out question", paragraph(sample.question)))
        rows += [
            (word, paragraph(said))
            for word, said in (("  before", sample.before), ("  after", sample.after))
            if said is not None
        ]
    rows += interruptions(ends) + unseen(ends)
    places = [
        ("report", "report.html"),
        ("adapter", "adapter"),
        ("model", "model"),
        ("lowest loss", "best"),
        ("metrics", "metrics.jsonl"),
        ("logs", "logs"),
    ]
    rows += [(word, f"{folder}/{name}") for word, name in places if name in files]
    if state == "finished":
        rows += [
            (
                "train longer",
                f"{playbook} train.yml -e resume={run} -e max_steps={story.steps * 2}",
            ),
            (
                "your own data",
                f"{playbook} train.yml {variable('model', model)} -e dataset=FILE.jsonl",
            ),
            ("every setting", "python training/train_distributed.py --help"),
        ]
    rows += next_command(state, run, playbook, kept=bool(story.checkpoints))
    if state == "failed":
        rows.append(what_happened(ends, folder))
    return "\n".join([outcome(run, story, ends), *table(rows)])


class ActionModule(ActionBase):
    """Runs on the controller."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the closing words, for the screen."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, options = self.validate_argument_spec(
            {
                "run": {"type": "str", "required": True},
                "folder": {"type": "path", "required": True},
                "ends": {"type": "dict", "required": True},
                "playbook": {"type": "str", "default": "ansible-playbook"},
            }
        )
        folder = Path(options["folder"])
        common = (
            options["ends"],
            as_typed(folder),
            [path.name for path in folder.glob("*")],
            options["playbook"],
        )
        script, model = self._what(folder / "run.yml")
        if script:
            text = script_summary(script, *common)
        else:
            story = Story.of(read_lines(folder / "metrics.jsonl"))
            text = summary(options["run"], model, story, *common)
        return result | {"say": f"\n{text}\n"}

    @staticmethod
    def _what(path: Path) -> tuple[ScriptRun | None, str]:
        """Return the script that a run file is of, or None, and the model that it names.

        One that is torn, or of another version, must not hide how the run ended.
        """
        try:
            if script := read_script(path):
                return script, ""
            return None, read_run(path).settings.model
        except ConfigError:
            return None, "MODEL"
