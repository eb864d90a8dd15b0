"""The model card of a run, from its run.yml and its metrics. Pure.

It shows nothing of the machines: no name of a node and no path. Of a person's own data it says the
name of the file and its checksum.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import PurePath
from statistics import fmean

from huggingface_hub import ModelCard, ModelCardData

from hearth import __version__
from hearth.after.scores import rows_of
from hearth.base.errors import DataError
from hearth.config import Run, Settings, load_preset, preset_names, shown
from hearth.data.locate import HubDataset, locate
from hearth.record.events import Score
from hearth.record.story import Story

CARD_TAG = "hearth"
"""Tag of each card; it marks a repository as Hearth's."""

_NOT_SHOWN = frozenset(
    {
        *("model", "dataset", "run", "resume", "onto", "replay", "validation"),
        *("wandb", "wandb_project", "eval", "eval_limit", "push", "private", "copy_to"),
        *("memory_limit", "fit", "threads", "collective_timeout", "parallel", "split"),
        *("micro_batch", "log_every"),
        *("checkpoint_every", "checkpoint_minutes", "checkpoint_keep"),
    }
)
"""Settings that say nothing of the result, or hold a path or a name of a person's."""

_BLOCKS = "▁▂▃▄▅▆▇█"

_ALWAYS = ("learning_rate", "global_batch", "sequence_length", "lora_rank", "lora_alpha")


def card_text(run: Run, name: str, story: Story) -> str:
    """Return the card of `run` for a repository or folder `name`.

    `story` is what its record tells.
    """
    lora, scratch = run.settings.lora, run.settings.scratch
    licence = licence_of(run)
    data = ModelCardData(
        model_name=name.split("/")[-1],
        library_name="peft" if lora else "transformers",
        pipeline_tag="text-generation",
        base_model=run.source.id if run.source.kind == "hub" and not scratch else None,
        license=licence,
        datasets=hub_data_sets(run.settings) or None,
        tags=[CARD_TAG, *(["lora"] if lora else []), "generated_from_trainer"],
    )
    parts = [
        f"---\n{data.to_yaml()}\n---",
        f"# {name.split('/')[-1]}",
        _about(run),
        _results(story),
        _scores(list(story.scores.values())),
        _data(run, story),
        _settings(run, story),
        _use(run, name),
        _licence(run, licence),
    ]
    return str(ModelCard("\n\n".join(part for part in parts if part) + "\n"))


def licence_of(run: Run) -> str | None:
    """Return the licence of the base model, None if it is not known or not the Hub's word."""
    if run.settings.scratch or run.settings.model not in preset_names():
        return None
    return load_preset(run.settings.model).licence


def hub_data_sets(settings: Settings) -> list[str]:
    """Return the data sets of a run that are on the Hub."""
    return [name.partition(":")[0] for name in settings.data_sets if _on_hub(name)]


def _on_hub(name: str) -> bool:
    """Return whether a data set is on the Hub; a file need not be on this node."""
    try:
        return "/" in name and isinstance(locate(name), HubDataset)
    except DataError:
        return False


def _base(run: Run) -> str:
    """Return the base model in Markdown; of a folder only its name."""
    source = run.source
    if source.kind == "hub":
        return f"[{source.id}](https://huggingface.co/{source.id})"
    return f"{source.name} (a local folder)"


def _about(run: Run) -> str:
    settings = run.settings
    if settings.scratch:
        what = f"A model with the sizes of {_base(run)}, trained from random weights"
    elif settings.lora:
        what = f"A LoRA adapter for {_base(run)}"
    else:
        what = f"{_base(run)}, with all weights trained"
    revision = run.source.revision
    at = f" (revision `{revision[:12]}`)" if revision and not settings.scratch else ""
    onto = f", on top of {run.start}" if run.start else ""
    return f"{what}{at}, trained with Hearth {__version__} on {run.created[:10]}{onto}."


def _results(story: Story) -> str:
    """Return the losses before and after, and the curve."""
    before, after = (story.held_out.get(when) for when in ("before", "after"))
    rows = []
    for label, key in (
        ("held-out loss", "loss"),
        ("held-out perplexity", "perplexity"),
        ("held-out preferences judged rightly", "reward_accuracy"),
    ):
        values = [getattr(each, key, None) for each in (before, after)]
        if None not in values:
            rows.append((label, *(f"{value:.4g}" for value in values)))
    losses = [each.loss for each in story.windows if each.loss is not None]
    if losses:
        rows.append(("training loss", f"{losses[0]:.4g}", f"{losses[-1]:.4g}"))
    curve = f"Training loss over the steps:\n\n```\n{sparkline(losses)}\n```" if losses else ""
    table = _table([("", "before", "after"), *rows]) if rows else ""
    return "\n\n".join(filter(None, ["## Result" if rows else "", table, curve]))


def _scores(scores: Sequence[Score]) -> str:
    if not scores:
        return ""
    return (
        "## Scores\n\nBy [lm-eval](https://github.com/EleutherAI/lm-evaluation-harness), without a "
        f"chat template; ± is the larger standard error.\n\n{_table(rows_of(scores))}"
    )


def _data(run: Run, story: Story) -> str:
    rows = [("data set", "share", "SHA-256")]
    for name, share in run.settings.data_sets.items():
        checksum = run.data_checksums.get(name)
        on_hub = f"[{name}](https://huggingface.co/datasets/{name.partition(':')[0]})"
        label = on_hub if _on_hub(name) else PurePath(name).name
        rows.append((label, f"{share:.0%}", f"`{checksum[:16]}…`" if checksum else "–"))
    rows_of_data = story.facts.data
    said = f"\n\nFingerprint of the rows as tokens: `{rows_of_data}`." if rows_of_data else ""
    return f"## Data\n\n{_table(rows)}{said}"


def _settings(run: Run, story: Story) -> str:
    """Return the settings that make the result, and the steps that were taken."""
    values = run.settings.model_dump()
    wanted = {
        name: shown(value)
        for name, value in values.items()
        if name not in _NOT_SHOWN
        and (name in _ALWAYS or value != Settings.model_fields[name].default)
        and (run.settings.lora or not name.startswith("lora_"))
    }
    rows = [("setting", "value"), *((f"`{name}`", text) for name, text in wanted.items())]
    if story.step:
        rows.append(("steps", str(story.step)))
    made = ", ".join(f"{name} {version}" for name, version in story.facts.versions.items())
    more = f"\n\nMade with {made}." if made else ""
    return f"## Settings\n\n{_table(rows)}{more}"


def _use(run: Run, name: str) -> str:
    repository = name if "/" in name else "FOLDER"
    base = run.source.id if run.source.kind == "hub" else "THE_BASE_MODEL"
    if run.settings.lora:
        lines = [
            "from peft import PeftModel",
            "from transformers import AutoModelForCausalLM, AutoTokenizer",
            "",
            f'base = AutoModelForCausalLM.from_pretrained("{base}", dtype="auto")',
            f'model = PeftModel.from_pretrained(base, "{repository}")',
            f'tokenizer = AutoTokenizer.from_pretrained("{base}")',
        ]
    else:
        lines = [
            "from transformers import AutoModelForCausalLM, AutoTokenizer",
            "",
            f'model = AutoModelForCausalLM.from_pretrained("{repository}", dtype="auto")',
            f'tokenizer = AutoTokenizer.from_pretrained("{repository}")',
        ]
    return "\n".join(["## Use", "", "```python", *lines, "```"])


def _licence(run: Run, licence: str | None) -> str:
    if run.settings.scratch:
        return ""
    known = f"is under `{licence}`" if licence else "has a licence of its own"
    return (
        f"## Licence\n\nThe base model {known}, which holds for what is derived from it; the data "
        "may add terms of their own."
    )


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a table in Markdown; the first row holds the titles."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines)


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Return `values` as at most `width` blocks, each the mean of its part; '' without any."""
    if not values:
        return ""
    count = min(width, len(values))
    edges = [round(number * len(values) / count) for number in range(count + 1)]
    means = [fmean(values[a:b]) for a, b in itertools.pairwise(edges)]
    low, high = min(means), max(means)
    # Divided first: the inverse of a tiny difference would be infinite.
    span, top = high - low or 1.0, len(_BLOCKS) - 1
    return "".join(_BLOCKS[round((mean - low) / span * top)] for mean in means)
