"""A run over a mixture of data sets."""

from __future__ import annotations

import pytest
from support.ranks import (
    figures,
    furthest,
    learned,
    metrics,
    refused,
    succeeded,
    train_forked,
    trained,
)


@pytest.fixture
def mixed(arguments, tmp_path):
    """Return arguments of a run over chats and texts, in float64 and with evaluation."""
    texts = tmp_path / "texts.txt"
    texts.write_text("\n\n".join(f"a lamp and cable {n} " * (1 + n % 6) for n in range(60)))
    dataset = f"{arguments[arguments.index('--dataset') + 1]}=0.6,{texts}=0.4"
    return [
        *arguments,
        "--dataset",
        dataset,
        "--precision",
        "fp64",
        "--eval-held-out",
        "--schedule",
        "constant",
    ]


def test_a_mixture_is_exact_under_any_split_and_goes_on_at_the_row(tmp_path, mixed):
    alone = trained(tmp_path, "alone", 1, *mixed, "--max-steps", 12)
    split = ("--split", "4:2:1", "--micro-batch", 2)
    trained(tmp_path, "night", 3, *mixed, *split, "--max-steps", 5)
    refused(train_forked(tmp_path, 1, "--resume", "night", "--dataset", "homelab-qa"), "dataset")
    succeeded(train_forked(tmp_path, 2, "--resume", "night", "--split", "2:1", "--max-steps", 12))
    expected, night = (tmp_path / "runs" / run for run in ("alone", "night"))
    assert figures(night, "step", "loss") == pytest.approx(figures(expected, "step", "loss"))
    assert furthest(learned(tmp_path, "night"), alone) < 1e-9
    before, after = (each["perplexity_by_set"] for each in metrics(expected, "evaluate"))
    assert before.keys() == after.keys()
    whole = metrics(expected, "evaluate")[1]["perplexity"]
    assert min(after.values()) < whole < max(after.values())
