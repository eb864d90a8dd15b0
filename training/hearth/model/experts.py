"""Models with a mixture of experts: LoRA learns beside frozen experts, which fit in 4 bits.

Transformers keeps all experts of a layer in two tensors of three dimensions. PEFT would adapt those
where `lora_targets` names their projections, with one adapter for each of a hundred experts; here
the adapter is on attention, on layers without experts and on shared experts. The layers of
bitsandbytes cannot hold such tensors, so each matrix of an expert is quantised by itself: NF4 with
double quantisation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import one_hot
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D


def experts_in(base: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Return the modules of `base` that hold all experts of a layer, by name."""
    return {
        name: module
        for name, module in base.named_modules()
        if getattr(getattr(module, "gate_up_proj", None), "ndim", 0) == 3
    }


def shared_targets(base: PreTrainedModel, targets: tuple[str, ...] | str) -> list[str]:
    """Return the linear layers outside of experts that `lora_targets` name.

    A name has two parts, such as `self_attn.q_proj`, since others may share its last one.
    """
    head = base.get_output_embeddings()
    found = {
        ".".join(name.split(".")[-2:])
        for name, module in base.named_modules()
        if isinstance(module, torch.nn.Linear | Conv1D)
        and (
            module is not head
            if isinstance(targets, str)
            else any(f".{name}".endswith(f".{target}") for target in targets)
        )
    }
    return sorted(found)


@contextmanager
def targets_as_named(base: PreTrainedModel) -> Iterator[None]:
    """Keep PEFT from reading the targets of an adapter for `base` as names of experts.

    It takes `gate_proj` for what older versions of Transformers called so, and goes by the type.
    """
    config: Any = base.config
    known = config.model_type
    config.model_type = f"{known} with frozen experts"
    try:
        yield
    finally:
        config.model_type = known


@dataclass(frozen=True)
class StoredExperts:
    """Names of experts in the files of a model family.

    Attributes:
        where: of all experts, below the layer's name.
        gate: of a matrix of each, as are `up` and `down`.
    """

    where: str
    gate: str
    up: str
    down: str

    def among(self, tensors: Iterable[str]) -> list[str]:
        """Return the names in `tensors` that are of experts."""
        return [name for name in tensors if f".{self.where}." in name]

    def names(self, layer: str, number: int) -> Iterator[tuple[str, str]]:
        """Yield the matrices of an expert, each with its stored name."""
        for matrix in ("gate", "up", "down"):
            yield matrix, f"{layer}.{self.where}.{number}.{getattr(self, matrix)}.weight"


class QuantisedExperts(torch.nn.Module):
    """Frozen experts that compute as Transformers' do, from weights in 4 bits.

    Attributes:
        num_experts: their number.
        shapes: shape of each of an expert's matrices.
        weights: the matrices by names such as `7_gate`.
    """

    def __init__(self, experts: torch.nn.Module, dtype: torch.dtype) -> None:
        """Make room for the weights of `experts`, which are on the meta device.

        Products are computed in `dtype`.
        """
        super().__init__()
        count, double, width = experts.gate_up_proj.shape
        self.num_experts: int = count
        self.shapes = {
            "gate": (double // 2, width),
            "up": (double // 2, width),
            "down": (width, double // 2),
        }
        self.act_fn = experts.act_fn
        self._dtype = dtype
        self.weights = torch.nn.ParameterDict()

    def put(self, number: int, name: str, matrix: torch.Tensor) -> None:
        """Quantise a matrix of an expert on its device."""
        from bitsandbytes.nn import Params4bit  # late: not every node has it

        self.weights[f"{number}_{name}"] = Params4bit(
            matrix.to(self._dtype), requires_grad=False, compress_statistics=True, quant_type="nf4"
        ).to(matrix.device)

    def forward(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """Return the sum of what each token's experts make of it, by their weights."""
        result = torch.zeros_like(hidden_states)
        chosen = one_hot(top_k_index, self.num_experts).permute(2, 1, 0)
        for number in chosen.sum(dim=(-1, -2)).nonzero().flatten().tolist():
            place, token = torch.where(chosen[number])
            state = hidden_states[token]
            state = self.act_fn(self._product(number, "gate", state)) * self._product(
                number, "up", state
            )
            state = self._product(number, "down", state) * top_k_weights[token, place, None]
            result.index_add_(0, token, state.to(result.dtype))
        return result

    def _product(self, number: int, name: str, state: torch.Tensor) -> torch.Tensor:
        from bitsandbytes import matmul_4bit

        weight: Any = self.weights[f"{number}_{name}"]
        product = matmul_4bit(state.to(self._dtype), weight, quant_state=weight.quant_state)
        return product.to(state.dtype)


def make_room(model: torch.nn.Module, dtype: torch.dtype) -> None:
    """Replace the experts of `model`, on the meta device, by quantised ones without weights yet."""
    for name, module in experts_in(model).items():
        model.set_submodule(name, QuantisedExperts(module, dtype))


def stored_shapes(
    model: torch.nn.Module, stored: StoredExperts | None
) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor that `read_experts` reads, by its stored name."""
    return {name: module.shapes[matrix] for module, _, matrix, name in _matrices(model, stored)}


def read_experts(
    model: torch.nn.Module,
    stored: StoredExperts | None,
    tensors: Mapping[str, Any],
    device: torch.device,
) -> list[str]:
    """Quantise the experts of `model` on `device`, one matrix after the other.

    `tensors` are slices of the stored ones. Returns the names that are missing.
    """
    missing = []
    for module, number, matrix, name in _matrices(model, stored):
        if name in tensors:
            module.put(number, matrix, tensors[name][...].to(device))
        else:
            missing.append(name)
    return missing


def _matrices(
    model: torch.nn.Module, stored: StoredExperts | None
) -> Iterator[tuple[QuantisedExperts, int, str, str]]:
    """Yield the quantised experts with the number, the matrix and its stored name of each."""
    for path, module in model.named_modules():
        if isinstance(module, QuantisedExperts) and stored:
            layer = path.rsplit(".", 2)[0]
            for number in range(module.num_experts):
                for matrix, name in stored.names(layer, number):
                    yield module, number, matrix, name
