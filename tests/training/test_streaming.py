"""A run over a data set that is read from a stand-in for the Hub while it trains."""

from __future__ import annotations

import json

import pyarrow
import pyarrow.parquet
import pytest
from support.ranks import (
    Origin,
    figures,
    furthest,
    learned,
    metrics,
    refused,
    succeeded,
    train_forked,
    trained,
)
from support.stand_in_hub import COMMIT, stand_in_hub

EXAMPLES = 2400
"""More than a window of the stream."""


@pytest.fixture
def hub(tmp_path):
    """Return a stand-in for the Hub with a data set of two files."""
    folder = tmp_path / "words"
    folder.mkdir()
    for part in range(2):
        numbers = range(part * EXAMPLES // 2, (part + 1) * EXAMPLES // 2)
        table = pyarrow.table({"text": [f"a lamp {n} " * (1 + n % 3) for n in numbers]})
        pyarrow.parquet.write_table(table, folder / f"train-{part:05}-of-00002.parquet")
    with stand_in_hub() as server:
        server.datasets["owner/words"] = folder
        yield server


@pytest.mark.rotated
def test_a_stream_is_exact_under_any_split_and_goes_on_at_the_row(tmp_path, tiny_model, hub):
    imports = (*Origin().imports, "datasets")
    origin = Origin(imports=imports, variables=tuple(hub.variables.items()))
    more = [
        *("--model", tiny_model, "--dataset", "owner/words", "--streaming", "--eval-held-out"),
        *("--sequence-length", 128, "--held-out", 0.05, "--precision", "fp64", "--wandb", "off"),
        *("--learning-rate", 0.01, "--global-batch", 40, "--schedule", "constant"),
        *("--micro-batch", 16),
    ]
    alone = trained(tmp_path, "alone", 1, *more, "--max-steps", 10, origin=origin)
    split = ("--split", "2:1")
    trained(tmp_path, "night", 2, *more, *split, "--max-steps", 6, origin=origin)
    hub.failures = 2  # while the stream is opened and read
    stages = ("--parallel", "pipeline", "--split", "equal")
    succeeded(
        train_forked(tmp_path, 2, "--resume", "night", *stages, "--max-steps", 8, origin=origin)
    )
    resumed = ("--resume", "night", "--max-steps", 10)
    whole_again = ("--parallel", "ddp", "--split", "equal")
    succeeded(train_forked(tmp_path, 1, *resumed, *whole_again, origin=origin))
    whole, night = (tmp_path / "runs" / run for run in ("alone", "night"))
    assert figures(night, "step", "loss") == pytest.approx(figures(whole, "step", "loss"))
    assert furthest(learned(tmp_path, "night"), alone) < 1e-9
    (facts,) = (night / "checkpoints").glob("step-00000010/checkpoint.json")
    assert json.loads(facts.read_text())["stream"]["window"] >= 1
    assert f"data_revision: {COMMIT}" in (night / "run.yml").read_text()
    assert [each["tokens"] > 0 for each in metrics(whole, "evaluate")] == [True, True]
    refused(train_forked(tmp_path, 1, *more, "--max-steps", 3), "owner/words", "streaming=off")
