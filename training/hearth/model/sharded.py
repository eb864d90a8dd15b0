"""Sharding of a model's weights over all ranks: `parallel: fsdp`, for models larger than one card.

FSDP2 shards the frozen weights, which are nearly all, layer by layer. Before a layer computes, its
shards are gathered from all ranks, and freed again after it. The adapter, some tens of megabytes,
is replicated on every rank: its gradients are summed in the usual exchange of the step, and its
optimizer and checkpoints are those of any run. Gathered weights equal the originals, so the result
is that of `parallel: ddp`, bit for bit if the plans are the same.

Gathering is collective: all ranks must make the same number of forward and backward passes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from hearth.base.errors import ConfigError
from hearth.config import Settings
from hearth.model.backend import TrainableModel
from hearth.model.load import load_model
from hearth.model.loaded import layers_of
from hearth.ranks.world import World


def load_sharded(settings: Settings, folder: Path, world: World, precision: str) -> TrainableModel:
    """Return the model in `folder` with a fresh adapter, its frozen weights sharded over all ranks.

    The model is read into the computer's memory. Layer by layer (then the embeddings, and the head)
    moves to the GPU, which keeps its shard, so it never holds more than one of them whole.

    Raises `ConfigError` on all ranks if they cannot share a model, and `ModelError` if the
    model does not declare its layers.
    """
    _check(world)
    model = load_model(settings, folder, torch.device("cpu"), precision)
    shard(model, world.gradients or dist.group.WORLD, world.device)
    return model


def _check(world: World) -> None:
    """Raise if there is only one rank, or if not all ranks have a GPU of their own or none.

    A GPU that uses gloo shares its card, or has ranks on CPUs beside it (see `world.join`).
    """
    if world.size == 1:
        raise ConfigError(
            "parallel: fsdp needs two ranks or more, and there is one; take parallel=ddp"
        )
    kinds = world.gather((world.node, world.device.type, world.gradient_device.type))
    by_gloo = [node for node, computes, speaks in kinds if computes != speaks]
    if by_gloo:
        raise ConfigError(
            "parallel: fsdp needs an NVIDIA GPU for every rank, or for none; there are GPUs on "
            f"{', '.join(dict.fromkeys(by_gloo))}, but not one for each rank of the run. Leave the "
            "other nodes out, or take parallel=ddp"
        )


def shard(model: TrainableModel, group: dist.ProcessGroup, device: torch.device) -> None:
    """Shard the frozen weights of `model` on `device`, and move its trainable ones there.

    Raises `ModelError` if the model does not declare its layers.
    """
    base = model.network.get_base_model()
    layers = layers_of(base, "parallel=fsdp cannot shard it; take parallel=ddp")
    learned = {parameter for _, parameter in model.trainable()}
    for parameter in learned:
        parameter.data = parameter.data.to(device)
    options = {"mesh": DeviceMesh.from_group(group, device.type), "ignored_params": learned}
    for layer in layers:
        fully_shard(layer, **options)
    embeddings, head = base.get_input_embeddings(), base.get_output_embeddings()
    if head.weight is not embeddings.weight:  # tied weights are sharded with the rest of the model
        # A lookup of frozen embeddings has no backward pass.
        fully_shard(embeddings, **options).set_unshard_in_backward(False)
        # The head's backward pass follows at once, so keep its weights gathered.
        fully_shard(head, reshard_after_forward=False, **options)
    fully_shard(base, **options)
    base.register_forward_hook(_give_up_without_backward)
    model.device = device


def _give_up_without_backward(base: torch.nn.Module, _inputs: Any, _output: Any) -> None:
    """Free the weights that FSDP2 keeps for a backward pass if none follows, as in evaluation.

    Otherwise only the ranks that save the adapter would free them, since `state_dict` does so, and
    in the next pass they would gather alone.
    """
    if not torch.is_grad_enabled():
        for module in base.modules():
            if isinstance(module, FSDPModule):
                module.reshard()


def weight_bytes(model: TrainableModel) -> tuple[int, int]:
    """Return the size of the sharded weights in bytes: of all ranks, and of this rank's shard."""
    parts = [each for each in model.network.parameters() if isinstance(each, DTensor)]
    whole = sum(each.numel() * each.element_size() for each in parts)
    return whole, sum(each.to_local().numel() * each.element_size() for each in parts)
