"""Token shards over the real plays: two nodes of this computer train on them where they are."""

from __future__ import annotations

import pytest
from support.facts import assert_line
from support.shards import write_shard

pytestmark = pytest.mark.cluster

SCRATCH = {"lora": False, "scratch": True, "max_steps": 3, "validation_tokens": 200}


@pytest.mark.rotated
def test_two_nodes_train_on_shards_that_both_see_and_nothing_is_copied(local):
    for name in ("train_1", "train_2", "val_1"):
        write_shard(local.folder / f"fine_{name}.bin", list(range(200)) * 5)
    shards = {
        "dataset": f"{local.folder}/fine_train_*.bin",
        "validation": f"{local.folder}/fine_val_*.bin",
    }
    screen = local.play("train.yml", *local.tiny(run="night", **shards, **SCRATCH))
    assert_line(screen, "data: 2 token shards", "20 rows", "1 validation shard", "2 rows")
    assert [record["step"] for record in local.metrics("night") if record["kind"] == "step"]
    assert not list((local.folder / "data").rglob("*.bin"))

    write_shard(local.folder / "fine_train_2.bin", [60_000] * 2000)
    screen = local.play("train.yml", *local.tiny(run="day", **shards, **SCRATCH), status=2)
    assert_line(screen, "fine_train_2.bin", "token 60000")
    assert not (local.runs / "day").exists()
