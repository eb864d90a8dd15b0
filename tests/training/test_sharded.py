"""`parallel: fsdp`: each rank has a part of the weights, and the result is that of one process."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributed as dist
from support.facts import assert_names, refuses
from support.ranks import (
    figures,
    furthest,
    learned,
    loaded,
    metrics,
    refused,
    succeeded,
    train_forked,
    trained,
)
from support.tiny_model import make_model, poisoned_work
from torch.distributed.tensor import DTensor
from transformers import Glm4MoeConfig

from hearth.base.errors import ModelError
from hearth.data.rows import Batch
from hearth.model.sharded import shard

STEPS = 12


@pytest.fixture(scope="module")
def one_process(tmp_path_factory, arguments):
    """Train in one process; return its folder and the arguments that others repeat."""
    cwd = tmp_path_factory.mktemp("one")
    common = [
        *(*arguments, "--max-steps", STEPS, "--precision", "fp64"),
        *("--eval-held-out", "--eval-every", 4, "--checkpoint-every", 8),
    ]
    trained(cwd, "whole", 1, *common)
    return cwd, common


# Seven rows are 5, 0 and 2: in turns of at most two rows 2+2+1, three blanks, and 1+1 and a blank.
UNEQUAL = ("--parallel", "fsdp", "--split", "4:0:2", "--micro-batch", 2)


def test_unequal_rows_and_an_idle_rank_equal_one_process(one_process, tmp_path):
    cwd, common = one_process
    done = succeeded(train_forked(tmp_path, 3, "--run-name", "parts", *common, *UNEQUAL))
    folders = [cwd / "runs" / "whole", tmp_path / "runs" / "parts"]
    assert furthest(learned(tmp_path, "parts"), learned(cwd, "whole")) < 1e-9
    assert furthest(learned(tmp_path, "parts", "best"), learned(cwd, "whole", "best")) < 1e-9
    held_out = [figures(folder, "evaluate", "loss") for folder in folders]
    assert len(held_out[0]) == 4
    assert held_out[1] == pytest.approx(held_out[0], abs=1e-9)

    (plan, *_) = metrics(folders[1], "plan")
    assert plan["rows"] == [5, 0, 2]
    (start,) = metrics(folders[1], "start")
    parts, whole = start["weight_bytes_by_rank"], start["weight_bytes"]
    assert sum(parts) == whole
    assert max(parts) < 0.4 * whole
    assert_names(done.stdout, "per step: 3", "3 ranks")
    assert [len(metrics(folder, "sample")) for folder in folders] == [2, 0]


@pytest.mark.rotated
def test_cut_alike_it_is_bit_for_bit_what_ddp_computes(one_process, tmp_path):
    _, common = one_process
    # Where two ranks have as many micro-batches each, only the blank ones of the third are added.
    more = [*common, "--split", "1:0:1", "--micro-batch", 2]
    more += ["--precision", "bf16", "--lora-dropout", 0.1, "--packing", "off"]
    more += ["--dora", "--neftune", 5]
    for parallel in ("ddp", "fsdp"):
        trained(tmp_path, parallel, 3, *more, "--parallel", parallel)
    assert furthest(learned(tmp_path, "fsdp"), learned(tmp_path, "ddp")) == 0


@pytest.mark.rotated
@pytest.mark.parametrize(
    ("first", "then"),
    [
        ((3, *UNEQUAL), (1, "--parallel", "ddp", "--split", "equal")),
        (
            (1, "--split", "equal", "--micro-batch", 1),
            (3, *UNEQUAL, "--gradient-checkpointing"),
        ),
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
    succeeded(train_forked(tmp_path, ranks, "--resume", "night", *how))
    assert figures(folder, "step", "step") == list(range(1, STEPS + 1))
    for kept in ("adapter", "best"):
        assert furthest(learned(tmp_path, "night", kept), learned(cwd, "whole", kept)) < 1e-9


@pytest.mark.rotated
def test_a_row_that_is_not_finite_is_named(tmp_path, tiny_model):
    trained(tmp_path, "night", 3, *poisoned_work(tiny_model, tmp_path), *UNEQUAL)
    (skip,) = metrics(tmp_path / "runs" / "night", "skip")
    (line,) = skip["rows"]
    assert line.endswith("x.jsonl:7")


def test_one_rank_alone_is_refused(arguments, tmp_path):
    done = train_forked(tmp_path, 1, *arguments, "--run-name", "night", "--parallel", "fsdp")
    refused(done, "parallel: fsdp", "two ranks", "one")


@pytest.fixture
def group():
    """A group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.mark.parametrize("tied", [False, True], ids=["head of its own", "head tied to embeddings"])
def test_what_is_frozen_is_sharded_and_what_learns_is_whole(group, tmp_path, tied):
    folder = make_model(tmp_path / "tiny", tie_word_embeddings=tied)
    whole, parts = loaded(folder), loaded(folder)
    shard(parts, group, parts.device)
    ids = np.arange(1, 13).reshape(2, 6)
    batch = Batch(ids, ids, np.arange(6)[None].repeat(2, axis=0), [6, 6])
    for model in (whole, parts):
        model.loss(batch, 10).backward()
        # The evaluation that may follow leaves nothing whole behind either.
        with torch.no_grad():
            model.loss(batch, 10)
    for (name, expected), found in zip(whole.trainable(), parts.trainable(), strict=True):
        assert found[0] == name
        assert torch.equal(found[1].grad, expected.grad)
    kinds = {(each.requires_grad, isinstance(each, DTensor)) for each in parts.network.parameters()}
    assert kinds == {(True, False), (False, True)}


def test_a_model_that_does_not_name_its_layers_is_refused(group, tiny_model):
    model = loaded(tiny_model)
    model.network.get_base_model()._no_split_modules = set()
    with refuses(ModelError, "LlamaForCausalLM", "parallel=ddp"):
        shard(model, group, model.device)


@pytest.mark.rotated("a mixture of experts by ddp and fsdp")
def test_experts_stay_frozen_and_ranks_learn_what_one_learns(tmp_path, tiny_data):
    sizes = {"num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    sizes |= {"n_group": 1, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1}
    model = make_model(tmp_path / "model", family=Glm4MoeConfig, num_hidden_layers=3, **sizes)
    common = [
        *("--model", model, "--dataset", tiny_data, "--sequence-length", 96, "--wandb", "off"),
        *("--learning-rate", 0.01, "--warmup-steps", 2, "--global-batch", 7, "--split", "equal"),
        *("--micro-batch", 1, "--lora-rank", 4, "--eval-held-out", "off", "--max-steps", 8),
        *("--precision", "fp64"),
    ]
    alone = trained(tmp_path, "alone", 1, *common)
    layers = {name.removeprefix("base_model.model.model.").split(".lora_")[0] for name in alone}
    kinds = {layer.split(".", 2)[2].rpartition(".")[0] for layer in layers}
    assert kinds == {"self_attn", "mlp", "mlp.shared_experts"}
    for parallel in ("ddp", "fsdp"):
        found = trained(tmp_path, parallel, 2, *common, "--parallel", parallel)
        assert furthest(found, alone) < 1e-9
