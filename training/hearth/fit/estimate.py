"""Estimated memory need of a rank for one micro-batch, by part. Pure arithmetic: no torch.

On a GPU one run of each backend in bf16 was compared (tests/bench/README.md); in fp32 attention
needs more there than is counted, probably for its scores.
"""

from __future__ import annotations

from dataclasses import dataclass

from hearth.base.nvidia import CUDA, PYTHON
from hearth.config.shape import Linear, Shape
from hearth.fit.case import Case
from hearth.fit.saved import dora_targets, inputs_in_8_bits, is_target, saved_by_layer
from hearth.model.unsloth_environment import LOGITS
from hearth.plan.prediction import EXCHANGED

_NF4 = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Bytes per 4-bit weight with its scales: one per block of 64, quantised in blocks of 256."""

_ADAM_8BIT = 2 * (1 + 4 / 256)
"""Bytes per parameter in bitsandbytes' AdamW: two one-byte moments, one scale per block of 256."""

OF_ROUNDS = EXCHANGED - 1 + 2
"""Additional tensors of that size that `sync_every` costs a rank: the exchanged ones beyond the
gradients, the parameters at the start of the round, and the outer optimizer's momentum."""

_HEAP = 0.65
"""Fragmentation of glibc's heap, as a fraction of all layers' tensors: a freed aligned block cannot
hold another of equal size. Measured on glibc 2.36, see tests/bench/README.md."""

_LARGEST = 32 << 20
"""Bytes of the heap's largest block, and so of its largest hole (mallopt(3), M_MMAP_THRESHOLD)."""

_OFFLOADED = 2 << 20
"""Bytes from which Unsloth's checkpointing moves a layer's input to the computer's memory."""

_RECOMPUTED = 2
"""Copies of a recomputed layer's tensors under Unsloth: each one and, beside it, its gradient. With
it the published context lengths come out within 3% (tests/bench/README.md)."""

_CPU_RUNTIME = 64 << 20


@dataclass(frozen=True)
class Estimate:
    """Estimated memory of a rank in bytes, by part.

    Attributes:
        weights: of the model, or of this rank's shard and the layers gathered at one time.
        gradients: the flat buffer that the ranks exchange.
        activations: tensors saved for the backward pass, and DoRA's while it computes.
        logits: the logits, and the tensors that the loss derives from them.
        exchange: the compressed copy of the buffer, if one is sent.
        rounds: additional tensors of local steps.
        runtime: CUDA's context, or the overhead of a rank on a CPU.
        imports: Python and its libraries, where they are in the memory that the rank computes in.
    """

    weights: int
    adapter: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    exchange: int
    rounds: int
    runtime: int
    imports: int

    @property
    def total(self) -> int:
        """Sum of all parts: the memory that training needs."""
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, int]:
        """The parts by name."""
        return dict(vars(self))


def estimate(shape: Shape, case: Case) -> Estimate:
    """Estimate the memory of a rank for one micro-batch of `case`, with a model of this `shape`."""
    run = case.settings
    adapter = 0
    if run.lora:
        adapter = adapter_parameters(shape, run.lora_rank, run.lora_targets, run.dora)
    learned = adapter or shape.parameters
    # Trainable parameters stay in fp32 even if the model computes in 16 bits.
    size = max(case.size, 4)
    # AdamW keeps two moments; Muon a momentum and, during a step, the updates that are exchanged.
    moments = round(learned * _ADAM_8BIT) if run.optimizer == "adamw_8bit" else 2 * learned * size
    return Estimate(
        weights=round(_weights(shape, case)),
        adapter=adapter * size,
        gradients=learned * size,
        optimizer=moments,
        activations=round(_activations(shape, case)) + _dora_scratch(shape, case),
        logits=_logits(shape, case),
        exchange=4 * learned * (EXCHANGED if case.rounds else 1) if run.compress != "none" else 0,
        rounds=OF_ROUNDS * learned * size if case.rounds else 0,
        runtime=CUDA if case.gpu else _CPU_RUNTIME,
        imports=0 if case.gpu and not case.unified else PYTHON,
    )


def adapter_parameters(
    shape: Shape, rank: int, targets: tuple[str, ...] | str, dora: bool = False
) -> int:
    """Return the parameters of a LoRA adapter: two matrices of `rank` at each target.

    With `dora` there is a magnitude for each output as well.
    """

    def size(name: str, linear: Linear) -> int:
        if not is_target(shape, name, targets):
            return 0
        return rank * (linear.features_in + linear.features_out) + dora * linear.features_out

    return shape.sum_of_linears(size)


def _weights(shape: Shape, case: Case) -> float:
    size = case.size
    if not case.settings.lora:
        return shape.parameters * max(size, 4)
    if case.sharers > 1:
        held = (shape.parameters / case.sharers + _gathered(shape)) * size
        # On a CPU each layer that is freed fragments the heap, as its activations do.
        return held if case.gpu else held + _HEAP * _in_the_heap(shape, size)
    if not case.quantised:
        return shape.parameters * size
    # PEFT casts the weights that are not quantised to fp32; Unsloth leaves them as they are.
    others = size if case.unsloth else max(size, 4)
    rest = (shape.parameters - shape.linear_parameters) * others + multiplied_out(shape, case)
    if case.settings.load_in_4bit:
        return shape.linear_parameters * _NF4 + rest
    scales = 4 * shape.num_hidden_layers * sum(each.features_out for each in shape.linears.values())
    return shape.linear_parameters + scales + rest


def multiplied_out(shape: Shape, case: Case) -> int:
    """Return the bytes of the largest matrix of a quantised model, of which one is multiplied out.

    In 4 bits it has the precision of the run, in 8 the type of its input.
    """
    largest = max(each.size for each in shape.linears.values())
    largest = max(largest, shape.hidden_size * shape.moe_intermediate_size)
    return largest * (case.size if case.settings.load_in_4bit else max(case.size, 4))


def _gathered(shape: Shape) -> float:
    """Return the number of weights that a sharded rank has gathered at one time.

    They are two layers (the current one and the prefetched next one) and the head, which may be
    tied to the embeddings (see hearth.model.sharded). By design; not measured on a GPU.
    """
    return (
        2 * shape.linear_parameters / shape.num_hidden_layers + shape.vocab_size * shape.hidden_size
    )


def _in_the_heap(shape: Shape, size: int) -> int:
    """Return the bytes of all layers, at `size` bytes per weight, that are gathered into the heap.

    Larger blocks are mapped separately, and their pages go back to the system when freed.
    """
    blocks = [linear.size * size for linear in shape.linears.values()]
    return shape.num_hidden_layers * sum(block for block in blocks if block <= _LARGEST)


def _activations(shape: Shape, case: Case) -> float:
    """Return the bytes saved for the backward pass, with heap fragmentation, without logits."""
    # Autocast keeps a 16-bit copy of every matrix that learns until the backward pass is over.
    matrices = shape.linear_parameters + shape.vocab_size * shape.hidden_size
    copies = matrices * case.size if case.size < 4 and not case.settings.lora else 0
    working = 0.0
    if case.settings.gradient_checkpointing:
        # All tensors of the one layer that is being recomputed.
        sizes, holes = _of_a_layer(shape, case)
        copies_of_it = _RECOMPUTED if case.unsloth else 1
        working = copies_of_it * sum(sizes) + shape.num_hidden_layers * holes
    return copies + kept(shape, case) + working


def kept(shape: Shape, case: Case) -> float:
    """Return the bytes of a micro-batch that all layers keep until its backward pass.

    Unsloth's checkpointing keeps larger inputs of layers in the computer's memory, which is the
    same memory only for a unified GPU.
    """
    if case.settings.gradient_checkpointing:
        inputs = [(shape.hidden_size, case.hidden_size), *inputs_in_8_bits(shape, case)]
        of_a_layer = case.tokens * sum(features * size for features, size in inputs)
        if case.unsloth and not case.unified:
            of_a_layer = min(of_a_layer, _OFFLOADED)
        return shape.num_hidden_layers * of_a_layer
    sizes, holes = _of_a_layer(shape, case)
    return shape.num_hidden_layers * (sum(sizes) + holes)


def _of_a_layer(shape: Shape, case: Case) -> tuple[list[int], float]:
    """Return the bytes of each tensor that a layer saves, and those of the holes in the heap.

    On a CPU freed tensors fragment the heap, so checkpointing saves less than it could.
    """
    sizes = [case.tokens * features * size for features, size in saved_by_layer(shape, case)]
    return sizes, 0.0 if case.gpu else _HEAP * sum(min(size, _LARGEST) for size in sizes)


def _dora_scratch(shape: Shape, case: Case) -> int:
    """Return the bytes that DoRA needs while it computes the norms of one layer's weights.

    They are a unit matrix, the adapter's product, and three tensors on the way from the weights
    to their norms. On a CPU they fragment the heap in every layer.
    """
    targets, size = dora_targets(shape, case.settings), max(case.size, 4)
    if not targets:
        return 0
    numbers = max(each.features_in * (each.features_in + 4 * each.features_out) for each in targets)
    return numbers * size + (0 if case.gpu else round(_HEAP * _in_the_heap(shape, size)))


def _logits(shape: Shape, case: Case) -> int:
    """Return the peak bytes of the logits, which is reached in the backward pass.

    Transformers holds the log-probabilities, their gradient and that of the logits, all at least in
    fp32, and the 16-bit copy that autocast makes of a frozen head in fp32, as PEFT makes it of a
    quantised model. Unsloth computes them in chunks.
    """
    positions = case.tokens * shape.vocab_size
    whole = 3 * positions * max(case.size, 4)
    if case.unsloth:
        return min(whole, LOGITS)
    copied = case.quantised and case.autocast
    return whole + copied * shape.vocab_size * shape.hidden_size * case.size
