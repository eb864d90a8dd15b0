"""`parallel: fsdp`: each rank has a part of the weights, and the result is that of one process."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from support.ranks import furthest, learned, metrics, train_forked, trained
from torch.distributed.tensor import DTensor

from hearth.config import resolve
from hearth.errors import ModelError
from hearth.model.load import load_model
from hearth.model.sharded import shard

STEPS = 12


@pytest.fixture(scope="module")
def one_process(tmp_path_factory, tiny_model, tiny_data):
    """What one process computes: a folder, and the arguments that others repeat."""
    cwd = tmp_path_factory.mktemp("one")
    common = [
        *("--model", tiny_model, "--dataset", tiny_data, "--sequence-length", 96),
        *("--learning-rate", 0.01, "--global-batch", 7, "--max-steps", STEPS),
        *("--precision", "fp64", "--wandb", "off", "--eval-every", 4, "--checkpoint-every", 8),
    ]
    trained(cwd, "whole", 1, *common, "--split", "equal", "--micro-batch", 1)
    return cwd, common


# Seven rows are 5, 0 and 2: in turns of at most two rows 2+2+1, three blanks, and 1+1 and a blank.
UNEQUAL = ("--parallel", "fsdp", "--split", "4:0:2", "--micro-batch", 2)


def test_unequal_rows_and_an_idle_rank_equal_one_process(one_process, tmp_path):
    cwd, common = one_process
    done = train_forked(tmp_path, 3, "--run-name", "parts", *common, *UNEQUAL)
    assert done.returncode == 0, done.stderr
    folders = [cwd / "runs" / "whole", tmp_path / "runs" / "parts"]
    assert furthest(learned(tmp_path, "parts"), learned(cwd, "whole")) < 1e-9
    assert furthest(learned(tmp_path, "parts", "best"), learned(cwd, "whole", "best")) < 1e-9
    held_out = [[each["loss"] for each in metrics(folder, "evaluate")] for folder in folders]
    assert len(held_out[0]) == 4
    assert held_out[1] == pytest.approx(held_out[0], abs=1e-9)

    (plan, *_) = metrics(folders[1], "plan")
    assert plan["rows"] == [5, 0, 2]
    (start,) = metrics(folders[1], "start")
    parts, whole = start["weight_bytes_by_rank"], start["weight_bytes"]
    assert sum(parts) == whole
    assert max(parts) < 0.4 * whole
    assert "micro-batches a step: 3." in done.stdout
    assert "fetches up to" in done.stdout
    assert [len(metrics(folder, "sample")) for folder in folders] == [2, 0]


def test_cut_alike_it_is_bit_for_bit_what_ddp_computes(one_process, tmp_path):
    _, common = one_process
    # Where two ranks have as many micro-batches each, only the blank ones of the third are added.
    more = [*common, "--no-evaluate", "--split", "1:0:1", "--micro-batch", 2]
    for parallel in ("ddp", "fsdp"):
        trained(tmp_path, parallel, 3, *more, "--parallel", parallel)
    assert furthest(learned(tmp_path, "fsdp"), learned(tmp_path, "ddp")) == 0


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ((3, *UNEQUAL), (1, "--parallel", "ddp", "--split", "equal")),
        ((1, "--split", "equal", "--micro-batch", 1), (3, *UNEQUAL)),
    ],
    ids=["fsdp, then one rank with ddp", "one rank with ddp, then fsdp"],
)
def test_a_checkpoint_goes_on_either_way(one_process, tmp_path, first, then):
    cwd, common = one_process
    folder = tmp_path / "runs" / "night"
    folder.mkdir(parents=True)
    (folder / "stop").touch()
    ranks, *how = first
    trained(tmp_path, "night", ranks, *common, *how)
    assert metrics(folder, "end")[0]["state"] == "stopped"
    ranks, *how = then
    done = train_forked(tmp_path, ranks, "--resume", "night", *how)
    assert done.returncode == 0, done.stderr
    assert [step["step"] for step in metrics(folder, "step")] == list(range(1, STEPS + 1))
    for kept in ("adapter", "best"):
        assert furthest(learned(tmp_path, "night", kept), learned(cwd, "whole", kept)) < 1e-9


def test_one_rank_alone_is_refused(arguments, tmp_path):
    done = train_forked(tmp_path, 1, *arguments, "--run-name", "night", "--parallel", "fsdp")
    assert done.returncode == 2
    assert "parallel: fsdp needs two ranks or more, and there is one" in done.stderr


@pytest.fixture
def group():
    """A group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_what_is_frozen_is_sharded_and_what_learns_is_whole(group, tiny_model):
    device = torch.device("cpu")
    model = load_model(resolve({"model": str(tiny_model)}).settings, tiny_model, device, "fp32")
    shard(model, group, device)
    kinds = {(each.requires_grad, isinstance(each, DTensor)) for each in model.network.parameters()}
    assert kinds == {(True, False), (False, True)}


def test_a_model_that_does_not_name_its_layers_is_refused(group, tiny_model):
    device = torch.device("cpu")
    model = load_model(resolve({"model": str(tiny_model)}).settings, tiny_model, device, "fp32")
    model.network.get_base_model()._no_split_modules = set()
    with pytest.raises(ModelError, match=r"LlamaForCausalLM: .* take parallel=ddp"):
        shard(model, group, device)
