"""Estimated memory need of a rank for one micro-batch, by part. Pure arithmetic: no torch.

The tensors that a layer saves were counted on Transformers' own modules (Llama, in fp32 and under
autocast); frozen weights need no saved inputs, adapters do. Unsloth's were read from the source of
its kernels. On a GPU one run of each backend in bf16 was compared (tests/bench/README.md); in fp32
attention needs more there than is counted, probably for its scores.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hearth.base.nvidia import CUDA, PYTHON
from hearth.config import Settings
from hearth.config.shape import Linear, Shape
from hearth.fit.capacity import Room, automatic_precision
from hearth.model.unsloth_environment import LOGITS
from hearth.plan.prediction import EXCHANGED

_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8}

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
"""Least bytes of a layer's input that Unsloth's checkpointing moves to the computer's memory."""

_RECOMPUTED = 2
"""Copies of a recomputed layer's tensors under Unsloth: each one and, beside it, its gradient. With
it the published context lengths come out within 3% (tests/bench/README.md)."""

_CPU_RUNTIME = 64 << 20


# -- the case --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """The settings of a run, with `auto` resolved, and the hardware of one rank.

    Attributes:
        gpu: whether the rank computes on an NVIDIA GPU.
        unified: whether that GPU shares the computer's memory.
        ranks: the world size.
    """

    settings: Settings
    gpu: bool
    ranks: int = 1
    unified: bool = False

    @property
    def size(self) -> int:
        """Bytes of a number in the precision of the run."""
        return _BYTES[self.settings.precision]

    @property
    def unsloth(self) -> bool:
        """Whether Unsloth computes."""
        return self.settings.backend == "unsloth"

    @property
    def autocast(self) -> bool:
        """Whether torch casts the operands of multiplications to 16 bits."""
        return self.settings.precision in ("bf16", "fp16")

    @property
    def quantised(self) -> bool:
        """Whether the weights are in 4 or 8 bits."""
        return self.settings.load_in_4bit or self.settings.load_in_8bit

    @property
    def hidden_size(self) -> int:
        """Bytes of a number of the hidden states, which have the type of the embeddings.

        PEFT casts the embeddings of a quantised model to fp32, and weights that learn are fp32.
        """
        wide = not self.unsloth and (self.quantised or not self.settings.lora)
        return max(self.size, 4) if wide else self.size

    @property
    def linear_size(self) -> int:
        """Bytes of a number that a linear layer returns.

        A quantised layer returns the type of its input; in 8 bits on a CPU autocast chooses.
        """
        wide = self.settings.load_in_4bit or (self.settings.load_in_8bit and self.gpu)
        return max(self.size, 4) if wide else self.size

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch."""
        rows = min(self.settings.micro_batch, self.settings.global_batch)
        return rows * self.settings.sequence_length

    @property
    def rounds(self) -> bool:
        """Whether the ranks take local steps between exchanges; a single rank exchanges nothing."""
        return self.settings.sync_every > 1 and self.ranks > 1

    @property
    def sharers(self) -> int:
        """Number of ranks that share the frozen weights; 1 if each holds all of them."""
        return self.ranks if self.settings.parallel == "fsdp" else 1


def in_common_precision(settings: Settings, rooms: Iterable[Room]) -> Settings:
    """Return `settings` with `precision=auto` resolved as ranks with these rooms will together."""
    if settings.precision != "auto":
        return settings
    return settings.model_copy(update={"precision": automatic_precision(rooms)})


def case_of(
    settings: Settings, gpu: bool, gpus: bool, all_gpus: bool, ranks: int, unified: bool = False
) -> Case:
    """Return the case of one rank, with or without a `gpu`, in a run of `ranks` ranks.

    `auto` is resolved as the run will: 16 bits if any rank has a GPU (`gpus`), the 8-bit optimizer
    if all have one (`all_gpus`) and its state is not averaged, Unsloth on each GPU if it suits the
    settings. An automatic micro-batch counts as one row, its minimum.
    """
    automatic = {
        "micro_batch": 1,
        "precision": "bf16" if gpus else "fp32",
        "optimizer": "adamw_8bit" if all_gpus and settings.sync_every == 1 else "adamw",
        "backend": "unsloth" if gpu and settings.suits_unsloth else "transformers",
    }
    settings = settings.at_most()
    chosen = {name: each for name, each in automatic.items() if getattr(settings, name) == "auto"}
    return Case(settings.model_copy(update=chosen), gpu, ranks, unified)


# -- the estimate ----------------------------------------------------------------------------------


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
    """Return the bytes of the largest matrix of a quantised model: one at a time is multiplied out.

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


# -- tensors that a layer saves --------------------------------------------------------------------


def saved_by_layer(shape: Shape, case: Case) -> list[tuple[int, int]]:
    """Return (features per token, bytes per feature) of every tensor that one layer saves."""
    layer = _unsloth_layer(shape, case) if case.unsloth else _layer(shape, case)
    return layer + _dora_layer(shape, case)


def inputs_in_8_bits(shape: Shape, case: Case) -> list[tuple[int, int]]:
    """Return a layer's matrix inputs in 8 bits, as `saved_by_layer` does.

    bitsandbytes keeps them where Transformers' checkpointing does not find them, so they stay;
    Unsloth's recomputes without a graph.
    """
    if not case.settings.load_in_8bit or case.unsloth:
        return []
    norms, result = (shape.hidden_size, max(case.size, 4)), (shape.query_size, case.size)
    return [norms, result, norms, (shape.shared_size, case.linear_size)]


def is_target(shape: Shape, name: str, targets: tuple[str, ...] | str) -> bool:
    """Return whether LoRA's `targets` name the linear layer `name` of Llama or Phi-3."""
    own = shape.family.names.get(name, name)
    return isinstance(targets, str) or own in {target.rpartition(".")[2] for target in targets}


def dora_targets(shape: Shape, run: Settings) -> list[Linear]:
    """Return the linear layers of a decoder layer that DoRA adapts, none without it."""
    if not (run.lora and run.dora):
        return []
    return [
        each for name, each in shape.linears.items() if is_target(shape, name, run.lora_targets)
    ]


def _dora_layer(shape: Shape, case: Case) -> list[tuple[int, int]]:
    """Return the tensors that DoRA saves beyond LoRA's: the two results that it scales."""
    size = max(case.size, 4)
    return [(each.features_out, size) for each in dora_targets(shape, case.settings)] * 2


def _layer(shape: Shape, case: Case) -> list[tuple[int, int]]:
    """Return the tensors of a layer of Transformers.

    Counted on Transformers' modules with PEFT's adapters. Under autocast the norms compute in fp32,
    and each adapter saves its own copy of its input. Linear layers in 4 bits then return fp32, but
    attention computes in 16 bits.
    """
    run, size, family, autocast = case.settings, case.size, shape.family, case.autocast
    returned = case.linear_size
    hidden, inner, query = shape.hidden_size, shape.shared_size, shape.query_size
    kept = [(hidden, max(size, 4))] * family.norms
    if shape.head_norms:
        kept += [(query, max(size, 4)), (shape.key_size, max(size, 4))]
    # Queries; keys and values, repeated for each head that shares them; the attention's output.
    kept += [(query, size)] * 4
    kept += [(run.sequence_length, size)]  # the mask that isolates documents: one row per token
    # Gate, its activation, up; without a gate the input of GPT-2's GELU and three terms of it.
    kept += [(inner, returned)] * (3 if family.gated else 4)
    if shape.num_experts:
        # What a token's experts return, in 4 bits also by their shares, and the three tensors of
        # their gate; they are frozen.
        taken = shape.num_experts_per_tok
        kept += [(taken * hidden, returned)] * (2 if run.load_in_4bit else 1)
        kept += [(taken * shape.moe_intermediate_size, returned)] * 3
    # Inputs of the trainable matrices: of the adapters, or of all linear layers.
    learning = run.lora_targets if run.lora else "all-linear"
    targets = [name for name in shape.linears if is_target(shape, name, learning)]
    for first in ("q_proj qkv_proj k_proj v_proj", "gate_proj gate_up_proj up_proj"):
        copies = sum(name in targets for name in first.split())
        kept += [(hidden, size)] * (copies if autocast else min(copies, 1))
    if "o_proj" in targets and autocast:
        kept += [(query, size)]  # else it is the attention's output itself
    if "down_proj" in targets:
        kept += [(inner, size)]
    if run.load_in_8bit:
        # It saves the input of every layer, which an adapter shares unless autocast copies it.
        readers = ("q_proj qkv_proj k_proj v_proj", "gate_proj gate_up_proj up_proj", "down_proj")
        attention, _, mlp, product = inputs_in_8_bits(shape, case)
        for tensor, names in zip((attention, mlp, product), readers, strict=True):
            if autocast or not set(names.split()) & set(targets):
                kept += [tensor]
    if not run.lora:
        return kept + [(hidden, max(size, 4))] * family.norms  # the norms' gains are trained, too
    return kept + [(run.lora_rank, size)] * len(targets)


def _unsloth_layer(shape: Shape, case: Case) -> list[tuple[int, int]]:
    """Return the tensors of `_layer` for Unsloth's kernels: shared inputs, no copies, no mask."""
    size = case.size
    kept = [(shape.hidden_size, size)] * (shape.family.norms + 2)
    kept += [(shape.query_size, size)] * 2 + [(shape.key_size, size)] * 2
    return kept + [(shape.shared_size, size)] * 2


# -- a stage of a pipeline -------------------------------------------------------------------------


def part_of(shape: Shape, layers: int, first: bool, last: bool) -> Shape:
    """Return the shape of a stage of `layers` layers.

    The first stage holds the embeddings, the last one the final norm and the head, also where both
    are one tensor.
    """
    # Learned positions belong to the first stage; they count as part of the embeddings.
    table = shape.vocab_size * shape.hidden_size
    positions = shape.max_position_embeddings * shape.hidden_size * shape.family.positions
    # The first layers of a mixture of experts have none.
    without_experts = min(layers, shape.first_k_dense_replace) if first else 0
    part = replace(shape, num_hidden_layers=layers, first_k_dense_replace=without_experts)
    ends = replace(shape, num_hidden_layers=0, first_k_dense_replace=0)
    held = part.decoder_parameters - ends.decoder_parameters
    held += first * (table + positions) + last * (table + shape.hidden_size)
    if first and last and shape.tie_word_embeddings:
        held -= table
    return replace(part, parameters=held)


def stage_estimate(
    shape: Shape, case: Case, layers: int, *, first: bool, last: bool, in_flight: int
) -> Estimate:
    """Estimate the memory of a stage that holds `in_flight` micro-batches between their passes.

    Each of them has the tensors that the layers keep, and the stage's result, which was sent and
    whose gradient is awaited. Tensors on their way are in the computer's memory: gradients that
    have arrived, and for two more micro-batches, which only the stage before still works on, hidden
    states that wait or a gradient on its way back.
    """
    part = part_of(shape, layers, first, last)
    one = estimate(part, case)
    more = (in_flight - 1) * kept(part, case)
    copies = 0 if last else in_flight
    if not case.gpu or case.unified:
        # A unified GPU's results are copied to be sent; on a CPU they are sent as they are.
        copies = copies * (3 if case.unified else 2) + 2 * (not first)
    results = copies * case.tokens * hidden_bytes(shape, case)
    return replace(
        one,
        activations=one.activations + round(more) + results,
        logits=one.logits if last else 0,
    )


def hidden_bytes(shape: Shape, case: Case) -> int:
    """Return the bytes of a token's hidden state, which stages send to each other."""
    return shape.hidden_size * case.hidden_size
