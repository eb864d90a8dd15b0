"""A model of which every rank holds a part: `parallel: fsdp`, for models that fit no single card.

FSDP2 shards what is frozen, which is nearly everything, layer by layer. Before a layer computes,
its parts are gathered from all ranks, and given up again behind it. The adapter, some tens of
megabytes, stays whole on every rank: so its gradients are summed in the one exchange of the step as
ever, and its optimizer and its checkpoints are those of any run. Gathered weights are the very
weights, so the result is that of `parallel: ddp`, bit for bit where the plans are the same.

Gathering needs all ranks: each must make as many forward and backward passes as any other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from hearth.base.errors import ConfigError, ModelError
from hearth.config import Settings
from hearth.model.backend import TrainableModel
from hearth.model.load import load_model
from hearth.ranks.world import World


def load_sharded(settings: Settings, folder: Path, world: World, precision: str) -> TrainableModel:
    """Return the model in `folder` with a fresh adapter, its frozen weights sharded over all ranks.

    It is read into the memory of the computer. The GPU takes one layer after the other (then the
    embeddings, and the head) and keeps its part, so it never holds more than one of them whole.

    Raises `ConfigError` on every rank alike if they cannot share a model, and `ModelError` if it
    does not say which of its modules are its layers.
    """
    _check(world)
    model = load_model(settings, folder, torch.device("cpu"), precision)
    shard(model, world.gradients or dist.group.WORLD, world.device)
    return model


def _check(world: World) -> None:
    """Raise if there is nobody to share with, or if the ranks compute on devices of unlike kinds.

    A GPU that speaks over gloo shares its card, or has ranks on CPUs beside it (see `world.join`).
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
    """Leave of the frozen weights of `model` this rank's part on `device`; move the rest there.

    Raises `ModelError` if it does not say which of its modules are its layers.
    """
    base = model.network.get_base_model()
    layers = [each for each in base.modules() if type(each).__name__ in base._no_split_modules]
    if not layers:
        raise ModelError(
            f"{type(base).__name__}: this model does not say what its layers are, so "
            "parallel=fsdp cannot shard it; take parallel=ddp"
        )
    learned = {parameter for _, parameter in model.trainable()}
    for parameter in learned:
        parameter.data = parameter.data.to(device)
    options = {"mesh": DeviceMesh.from_group(group, device.type), "ignored_params": learned}
    for layer in layers:
        fully_shard(layer, **options)
    embeddings, head = base.get_input_embeddings(), base.get_output_embeddings()
    if head.weight is not embeddings.weight:  # Else they are one, and stay with the rest.
        # Looking a frozen vector up has no backward pass.
        fully_shard(embeddings, **options).set_unshard_in_backward(False)
        # Its backward pass follows at once: it need not be gathered again.
        fully_shard(head, reshard_after_forward=False, **options)
    fully_shard(base, **options)
    base.register_forward_hook(_give_up_without_backward)
    model.device = device


def _give_up_without_backward(base: torch.nn.Module, _inputs: Any, _output: Any) -> None:
    """Give up what FSDP2 keeps for a backward pass where there will be none, as in evaluation.

    Else only the ranks that save the adapter would, since `state_dict` does so, and in the next
    pass they would gather alone.
    """
    if not torch.is_grad_enabled():
        for module in base.modules():
            if isinstance(module, FSDPModule):
                module.reshard()


def weight_bytes(model: TrainableModel) -> tuple[int, int]:
    """Return the size of the sharded weights: of all ranks together, and of this rank's part."""
    parts = [each for each in model.network.parameters() if isinstance(each, DTensor)]
    whole = sum(each.numel() * each.element_size() for each in parts)
    return whole, sum(each.to_local().numel() * each.element_size() for each in parts)
