"""The report as one self-contained HTML page that needs no other file and no network."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from hearth.after.scores import rows_of
from hearth.base.files import write_whole
from hearth.base.text import duration
from hearth.config import Settings, shown
from hearth.node.limit_cost import describe_limit
from hearth.record.absences import describe_cost
from hearth.record.windows import totals
from hearth_controller.report import figures
from hearth_controller.report.read import RunFolder, read
from hearth_controller.report.repeat import explicit_settings, repeat_command
from hearth_controller.report.svg import NARROW, WIDE, as_variables, colours_of
from hearth_controller.runs.energy import energy_of, significant
from hearth_controller.runs.listing import time_taken

FILE = "report.html"
"""The report's name in the run's folder."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
"""Characters that a model may generate and HTML does not allow."""

_HEADLINES = {
    "finished": "finished",
    "stopped": "was stopped",
    "failed": "failed",
    "lost": "was lost from sight: no node answered any more, and it may still be under way",
    "queued": "waits for its turn",
    "running": "is under way",
    "waiting": "waits",
    "without an end": "has no end on record: it is still under way, or was killed",
}


def write_report(folder: Path) -> Path:
    """Write the report of the run in `folder` and return its path.

    Raises `ConfigError` if the folder holds no run, `OSError` if writing fails.
    """
    path = folder / FILE
    write_whole(path, page(read(folder)))
    return path


def page(known: RunFolder) -> str:
    """Return the report of a run as HTML."""
    return render("page.html.j2", contents(known))


def render(template: str, known: Mapping[str, Any]) -> str:
    """Return a page as HTML; `known` has the values for its template."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["duration"] = duration
    environment.filters["significant"] = significant
    html = environment.get_template(template).render(known)
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", html)


def contents(known: RunFolder) -> dict[str, Any]:
    """Return the contents of the report of a run, for its template."""
    story = known.story
    price = known.outcome.electricity_price if known.outcome else 0.0
    return {
        "known": known,
        "story": story,
        "headline": _HEADLINES[known.state],
        "took": time_taken(story.length, story.seconds),
        "nodes": node_rows(known),
        "launches": launch_rows(known),
        "teams": team_rows(known),
        "cost": describe_cost(story.teams),
        "figures": _figures(known),
        "scores": story.scores and rows_of(list(story.scores.values())),
        "settings": setting_rows(known),
        "facts": fact_rows(known),
        "command": known.run
        and repeat_command(known.run, known.outcome.hearth if known.outcome else None),
        "change": _change(*story.perplexity),
        "speed": _speed(known),
        "energy": energy_of(story, price),
    }


def node_rows(known: RunFolder) -> list[dict[str, Any]]:
    """Return the work of each node in the whole run, in order of rank; `colour` is CSS."""
    colours = colours_of(known.story.nodes)
    done = totals(known.story.windows)
    every = sum(part.rows for part, _ in done.values())
    rows = []
    for node in known.story.nodes:
        if node not in done:
            continue
        part, seconds = done[node]
        steps = sum(each.steps for each in known.story.windows if node in each.parts)
        rows.append(
            {
                "name": node,
                "colour": as_variables(colours[node]),
                "rows": part.rows,
                "share": part.rows / every,
                "tokens_per_second": part.tokens / seconds,
                "compute_seconds": part.compute_seconds / steps,
                "wait_seconds": part.wait_seconds / steps,
                "peak_memory_mib": part.peak_memory_mib,
                "celsius": part.celsius,
            }
        )
    return rows


def launch_rows(known: RunFolder) -> list[dict[str, Any]]:
    """Return the recorded launches, each with the reason why the previous one ended."""
    causes = {}
    for launch in known.outcome.launches if known.outcome else []:
        cause = launch.get("cause") or {}
        words = (str(cause[word]) for word in ("node", "message") if cause.get(word))
        causes[launch.get("generation")] = ": ".join(words)
    rows, earlier = [], None
    for launch in known.story.launches:
        # A launch that ended before its first record is not in the story.
        between = range(launch.generation - 1, -1 if earlier is None else earlier - 1, -1)
        since = () if earlier is None else filter(None, map(causes.get, between))
        rows.append(
            {
                "generation": launch.generation,
                "began": "0 s" if earlier is None else duration(launch.at),
                "step": launch.step,
                "nodes": ", ".join(launch.present),
                "reason": next(iter(since), ""),
            }
        )
        earlier = launch.generation
    return rows


def team_rows(known: RunFolder) -> list[dict[str, Any]]:
    """Return the regroups, each with its changes and its cost to the nodes that stayed."""
    return [
        {
            "at": duration(team.at),
            "step": team.step,
            "changes": team.changes,
            "nodes": ", ".join(team.nodes),
            "waited": "–" if team.waited is None else f"{team.waited:.1f} s",
        }
        for team in known.story.teams
    ]


def setting_rows(known: RunFolder) -> list[tuple[str, str, str, bool]]:
    """Return name, value and origin of every setting, and whether it was given explicitly.

    Explicit settings come first, then those of the preset.
    """
    if known.run is None:
        return []
    typed = explicit_settings(known.run)
    rows = []
    for name in Settings.model_fields:
        origin = known.run.origins.get(name, "default")
        rows.append((name, shown(getattr(known.run.settings, name)), origin, name in typed))
    return sorted(rows, key=lambda row: (not row[3], row[2] == "default"))


def fact_rows(known: RunFolder) -> list[tuple[str, str]]:
    """Return labels and values of versions, fingerprints and resolved `auto` settings."""
    facts, run = known.story.facts, known.run
    versions = {"hearth": known.hearth} | facts.versions
    rows: list[tuple[str, Any]] = [(name, version) for name, version in versions.items()]
    if run:
        rows += [
            ("model", f"{run.source.name} ({run.source.kind} {run.source.id})"),
            ("model revision", run.source.revision),
            ("on top of", run.start),
            ("its adapter, sha256", run.start and run.start.sha256),
        ]
        for name, sha256 in run.data_checksums.items():
            rows += [("data", name), ("data file, sha256", sha256)]
    rows += [
        ("model fingerprint", facts.model),
        ("data fingerprint (rows as tokens)", facts.data),
        ("rows", facts.rows),
        ("tokens an epoch", facts.tokens_per_epoch),
        ("parameters that learn", facts.trainable_parameters),
        ("precision", facts.precision),
        ("optimizer", facts.optimizer),
        ("gradients over", facts.gradients),
        ("bytes exchanged a step", facts.exchange_bytes),
    ]
    rows += _pipeline_rows(known)
    rows += [
        (f"rank {rank.get('rank')}", f"{rank.get('node')}, {rank.get('device')}{_limit(rank)}")
        for rank in facts.ranks
    ]
    return [
        (name, f"{value:,}" if isinstance(value, int) else str(value))
        for name, value in rows
        if value is not None
    ]


def _pipeline_rows(known: RunFolder) -> list[tuple[str, str]]:
    """Return the planned stages of a pipeline, and the predicted beside the measured step."""
    planned = known.run and known.run.pipeline
    if not planned:
        return []
    ends = itertools.accumulate(layers for _, layers in planned.stages)
    stages = ", ".join(
        f"rank {rank} layers {end - layers + 1}-{end}"
        for (rank, layers), end in zip(planned.stages, ends, strict=True)
    )
    steps = sum(each.steps for each in known.story.windows)
    took = sum(each.seconds for each in known.story.windows)
    measured = f", {took / steps:.2f} s measured" if steps else ""
    return [
        ("stages", stages),
        ("seconds of a step", f"{planned.step_seconds:.2f} s predicted{measured}"),
    ]


def _figures(known: RunFolder) -> dict[str, Markup]:
    """Return the figures as HTML by name, each for two widths; empty without a step."""
    if not known.story.windows:
        return {}
    drawn = (figures.learning, figures.timeline, figures.waiting)
    widths = {"wide": WIDE, "narrow": NARROW}
    return {
        draw.__name__: Markup(
            "".join(
                f'<div class="{name}">{draw(known.story, width)}</div>'
                for name, width in widths.items()
            )
        )
        for draw in drawn
    }


def _limit(rank: Mapping[str, Any]) -> str:
    """Return the recorded limit on the power of a rank's GPU, with its cost, or ''."""
    if not (power := rank.get("power")):
        return ""
    known = (power[name] for name in ("limit", "default", "slower", "measured"))
    return f", limited to {describe_limit(*known)}"


def _change(before: float | None, after: float | None) -> str:
    """Return the change of the perplexity as text."""
    return f"{after / before - 1:+.0%}" if before and after else ""


def _speed(known: RunFolder) -> float | None:
    """Return tokens per second of all nodes together over the run's training time."""
    seconds = sum(each.seconds for each in known.story.windows)
    tokens = sum(each.tokens_per_second * each.seconds for each in known.story.windows)
    return tokens / seconds if seconds else None
