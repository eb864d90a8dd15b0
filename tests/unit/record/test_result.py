"""The result of a run: its last weights, its best, or those of a checkpoint until it has ended."""

from __future__ import annotations

import os
import shutil

from support.facts import refuses
from support.finished import make_adapter, make_run

from hearth.base.errors import ModelError
from hearth.config import read_run
from hearth.record.checkpoint import save
from hearth.record.lines import METRICS
from hearth.record.result import (
    Result,
    find_result,
    kept_result,
    other_base,
)
from hearth.record.story import read_story


def test_the_result_of_a_run_and_of_one_that_has_not_ended(tmp_path, tiny_model):
    folder = make_run(tmp_path / "runs", "evening", tiny_model)
    run, kept = read_run(folder / "run.yml"), folder / "checkpoints"
    said = []
    assert find_result(folder, run, kept, said.append) == Result("adapter", folder / "adapter")
    with refuses(ModelError, folder / "best", "eval_every"):
        find_result(folder, run, kept, said.append, best=True)
    shutil.move(folder / "adapter", tmp_path / "adapter")
    with refuses(ModelError, kept, "resume=evening"):
        find_result(folder, run, kept, said.append)

    def write(place):
        shutil.copytree(tmp_path / "adapter", place / "adapter")

    for step in (10, 20):
        save(kept, step, {"created": run.created}, 2, write)
    saved = kept / "step-00000020"
    assert find_result(folder, run, kept, said.append) == Result("adapter", saved / "adapter", 20)
    (saved / "adapter" / "adapter_config.json").write_text("{")
    assert find_result(folder, run, kept, said.append).step == 10
    assert "step-00000020" in "".join(said)
    make_adapter(tiny_model, folder / "best")
    best = find_result(folder, run, kept, said.append, best=True)
    assert best == Result("adapter", folder / "best")


def test_a_run_that_was_resumed_has_the_weights_of_its_checkpoint_until_it_ends(
    tmp_path, tiny_model
):
    folder = make_run(tmp_path / "runs", "evening", tiny_model)
    run, kept = read_run(folder / "run.yml"), folder / "checkpoints"
    metrics = folder / METRICS
    ended = '{"kind": "start", "step": 0}\n{"kind": "end", "step": 10}\n'
    resumed = '{"kind": "start", "step": 0}\n{"kind": "start", "step": 10}\n'
    metrics.write_text(resumed)
    assert find_result(folder, run, kept, print).step is None  # there is nothing newer
    save(kept, 20, {"created": run.created}, 1, lambda place: copy_adapter(folder, place))
    assert find_result(folder, run, kept, print).step == 20
    metrics.write_text(ended)
    assert find_result(folder, run, kept, print).step is None


def copy_adapter(folder, place):
    shutil.copytree(folder / "adapter", place / "adapter")


def test_a_checkpoint_that_the_run_removes_can_be_read_all_the_same(tmp_path, tiny_model):
    folder = make_run(tmp_path / "runs", "evening", tiny_model)
    run, kept = read_run(folder / "run.yml"), folder / "checkpoints"
    final = find_result(folder, run, kept, print)
    with kept_result(lambda: final) as result:
        assert result == final
    shutil.move(folder / "adapter", tmp_path / "adapter")

    def keep(step):
        def write(place):
            shutil.copytree(tmp_path / "adapter", place / "adapter")

        save(kept, step, {"created": run.created}, 1, write)

    keep(10)
    gone = find_result(folder, run, kept, print)
    keep(20)  # which removes the first
    found = iter([gone, find_result(folder, run, kept, print)])
    killed, other = kept / ".reading-a", kept / ".reading-b"
    for reader in (killed, other):
        (reader / "0").mkdir(parents=True)
    os.utime(killed, (0, 0))
    with kept_result(lambda: next(found)) as result:
        keep(30)
        assert result.step == 20
        read = (result.folder / "adapter_model.safetensors").read_bytes()
    assert read == (tmp_path / "adapter" / "adapter_model.safetensors").read_bytes()
    shutil.rmtree(other)
    assert [path.name for path in kept.iterdir()] == ["step-00000030"]
    with refuses(ModelError, "checkpoints"), kept_result(lambda: gone):
        pass
    assert [path.name for path in kept.iterdir()] == ["step-00000030"]


def test_a_whole_model_is_a_result_too(tmp_path, tiny_model):
    folder = make_run(tmp_path / "runs", "whole", tiny_model, lora=False)
    run = read_run(folder / "run.yml")
    assert find_result(folder, run, folder, print) == Result("model", folder / "model")


def test_another_base_is_known_by_what_the_run_recorded(tmp_path, tiny_model):
    folder = make_run(tmp_path / "runs", "evening", tiny_model, adapter=False)
    recorded = read_story(folder).facts.model
    assert other_base(folder, recorded + "0" * 48) is None
    assert other_base(folder, "f" * 64) == recorded
    (folder / "metrics.jsonl").unlink()
    assert other_base(folder, "f" * 64) is None
