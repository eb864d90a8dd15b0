"""Action plugin: the closing summary of a run, from its collected files."""

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
    """Wrap `text` to a few lines, truncated at a word if it is longer.

    A model's output can contain anything; control characters must not reach the terminal.
    """
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return textwrap.wrap(words, _WIDTH, max_lines=_LINES, placeholder=" …") or [""]


def table(rows: Iterable[tuple[str, str | list[str]]]) -> list[str]:
    """Return the lines of a table of labels and texts, of one line or several each."""
    rows = list(rows)
    wide = max((len(word) for word, _ in rows), default=0)
    lines = []
    for word, said in rows:
        for part in [said] if isinstance(said, str) else said:
            lines.append(f"  {word:<{wide}}  {part}")
            word = ""
    return lines


def outcome(run: str, story: Story, ends: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the first line: the outcome of the run."""
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
    """Return whether rank 0's node, which has the record, was present at the end."""
    return any(
        end.get("rank") == 0 and (end["state"] in ENDS or end.get("gone")) for end in ends.values()
    )


def next_command(
    state: str, run: str, playbook: str, kept: bool
) -> list[tuple[str, str | list[str]]]:
    """Return the next command for an unfinished run; `kept`: there is something to resume from.

    A lost run may still be under way: the command then checks its state.
    """
    if state == "lost":
        return [("look again", f"{playbook} playbooks/attach.yml -e run={run}")]
    if state == "finished" or not kept:
        return []
    return [("go on", f"{playbook} train.yml -e resume={run}")]


def script_outcome(run: str, script: ScriptRun, ends: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the first line for the run of a user's script, with its duration.

    The duration is left out after several launches, since the gaps between them are unknown.
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
    """Return the closing summary for the run of a user's script, as `summary` does."""
    files, state = set(files), state_of(ends)
    rows = interruptions(ends) + unseen(ends)
    rows += [(name, f"{folder}/{name}") for name in ("files", "logs") if name in files]
    rows += next_command(state, script.name, playbook, kept=True)
    if state == "failed":
        rows.append(what_happened(ends, folder))
    return "\n".join([script_outcome(script.name, script, ends), *table(rows)])


def what_happened(ends: Mapping[str, Mapping[str, Any]], folder: str) -> tuple[str, str]:
    """Return the command that shows the log with the cause of a failure."""
    blamed = {(end.get("cause") or {}).get("node") for end in ends.values()}
    log = f"{blamed.pop()}.log" if len(blamed) == 1 and None not in blamed else "*.log"
    return "what happened", f"less {folder}/logs/{log}"


def interruptions(ends: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str | list[str]]]:
    """Return the failures that the run survived by relaunching, from rank 0's record."""
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
    """Return the nodes that did not report the end of a successful run, with reasons."""
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
    """Return the closing summary of a run.

    `folder` holds its files on the controller, as a typed path, and `files` are their names;
    `playbook` is the ansible-playbook command with the same inventory.
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
        """Return the closing summary, for the screen."""
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
        """Return a run file's script, or None, and its model.

        A damaged run file, or one of another version, must not hide the run's outcome.
        """
        try:
            if script := read_script(path):
                return script, ""
            return None, read_run(path).settings.model
        except ConfigError:
            return None, "MODEL"
