"""How much memory a rank needs for one micro-batch, by part. Pure arithmetic: no torch.

What autograd keeps of a layer was counted on Transformers' own modules (Llama, in fp32 and under
autocast, every tensor that is saved for the backward pass); frozen weights need no inputs kept,
adapters do. For Unsloth it is read off its kernels. What is said of GPUs has not been measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from hearth.config import Settings
from hearth.config.shape import Shape
from hearth.fit.capacity import GIB

_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8}

_STORED = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}

_NF4 = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Bytes a weight in 4 bits, with its scales: one a block of 64, themselves in blocks of 256."""

_ADAM_8BIT = 2 * (1 + 4 / 256)
"""Bytes a parameter of bitsandbytes' AdamW: two moments of one byte, a scale a block of 256."""

EXCHANGED = 3
"""Tensors as large as what learns that ranks exchange after steps by themselves (`sync_every`):
what they learned, and both moments of AdamW. In every other exchange it is one, the gradients."""

OF_ROUNDS = EXCHANGED - 1 + 2
"""Such tensors that a rank then has beyond those of any other run: also where the round began, and
the outer optimizer's momentum."""

_CHUNK = GIB // 4
"""What Unsloth's cross entropy takes at least: it cuts the logits to what is free."""

_HEAP = 0.65
"""What glibc's heap loses between the tensors of all layers, as part of them: an aligned block that
was freed has no place for one of equal size. Measured on glibc 2.36, see docs/benchmarks.md."""

_LARGEST = 32 << 20
"""Bytes of the largest block in that heap (mallopt(3), M_MMAP_THRESHOLD): of the largest hole."""

_IMPORTS = 420 << 20
"""Resident once Python, torch and all the rest are imported; on the computer, not on a card."""

_CUDA_CONTEXT = GIB * 3 // 4
_CPU_RUNTIME = 64 << 20


@dataclass(frozen=True)
class Case:
    """What the memory of a rank depends on, besides the shape of the model.

    Attributes:
        rows: of a micro-batch.
        length: tokens of a row.
        gpu: whether the rank computes on an NVIDIA GPU.
        precision: bf16, fp16, fp32 or fp64.
        backend: unsloth or transformers.
        optimizer: adamw or adamw_8bit.
        lora: whether an adapter learns; else the model itself does.
        rounds: whether ranks take steps by themselves between exchanges (`sync_every`).
        scratch: whether the weights are drawn and not read.
        settled: whether `precision` is known: what `auto` comes to on a card shows there.
        sharers: ranks that hold a part each of what does not learn (`parallel: fsdp`); 1 where
            every rank holds all of it.
    """

    rows: int
    length: int
    gpu: bool
    precision: str
    backend: str
    optimizer: str
    load_in_4bit: bool
    gradient_checkpointing: bool
    compress: bool
    lora: bool
    lora_rank: int
    lora_targets: tuple[str, ...] | str
    rounds: bool = False
    scratch: bool = False
    settled: bool = True
    sharers: int = 1


def case_of(settings: Settings, gpu: bool, gpus: bool, all_gpus: bool, ranks: int) -> Case:
    """Return the case of a rank with or without a GPU, where it runs with others.

    Settled as the run will: `auto` takes 16 bits where some rank has a GPU (`gpus`), the 8-bit
    optimizer where all have (`all_gpus`) and its state is not averaged, Unsloth on each GPU where
    it suits the settings. A micro-batch that is not set can be as small as one row. `ranks` is the
    world size; a rank alone has nobody to exchange with.
    """
    sharded = settings.parallel == "fsdp"
    rows = 1 if settings.micro_batch == "auto" else settings.micro_batch
    automatic = {
        "precision": "bf16" if gpus else "fp32",
        "optimizer": "adamw_8bit" if all_gpus and settings.sync_every == 1 else "adamw",
        "backend": "unsloth" if gpu and settings.suits_unsloth else "transformers",
    }
    chosen = {
        name: getattr(settings, name) if getattr(settings, name) != "auto" else value
        for name, value in automatic.items()
    }
    return Case(
        rows=min(rows, settings.global_batch),
        length=settings.sequence_length,
        gpu=gpu,
        load_in_4bit=settings.load_in_4bit,
        gradient_checkpointing=settings.gradient_checkpointing,
        compress=settings.compress != "none",
        lora=settings.lora,
        lora_rank=settings.lora_rank,
        lora_targets=settings.lora_targets,
        rounds=settings.sync_every > 1 and ranks > 1,
        scratch=settings.scratch,
        settled=settings.precision != "auto" or not gpus,
        sharers=ranks if sharded else 1,
        **chosen,
    )


@dataclass(frozen=True)
class Estimate:
    """Bytes by part.

    Attributes:
        weights: of the model, or this rank's part and what is gathered of the others'.
        adapter: the LoRA matrices.
        gradients: the flat buffer that the ranks exchange.
        optimizer: its moments.
        activations: kept for the backward pass.
        logits: and what the loss makes of them.
        exchange: the copy that travels where it is not the buffer itself.
        rounds: what ranks that take steps by themselves exchange besides, and keep of the round.
        runtime: CUDA's context, or what a rank on a CPU takes besides.
        imports: Python and its libraries, for a rank on a CPU.
        loading: no part of it: what of the computer's memory a rank takes for a moment, before it
            trains, where it has the whole model there and keeps it elsewhere, or only a part of it;
            0 where it does not.
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
    loading: int

    @property
    def total(self) -> int:
        """All parts together, which is what training takes."""
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, int]:
        """The parts by name."""
        return {name: size for name, size in vars(self).items() if name != "loading"}

    def table(self) -> str:
        """Return a line a part, in GiB, and the sum."""
        rows = [*self.parts.items(), ("together", self.total)]
        return "\n".join(f"{name:<11}  {size / GIB:6.2f} GiB" for name, size in rows)


def estimate(shape: Shape, case: Case) -> Estimate:
    """Return what a rank needs for a micro-batch of `case` of a model of this `shape`."""
    adapter = adapter_parameters(shape, case.lora_rank, case.lora_targets) if case.lora else 0
    learned = adapter or shape.parameters
    # What learns is in fp32 also where the model computes in 16 bits.
    size = max(_BYTES[case.precision], 4)
    moments = round(learned * _ADAM_8BIT) if case.optimizer == "adamw_8bit" else 2 * learned * size
    return Estimate(
        weights=round(_weights(shape, case)),
        adapter=adapter * size,
        gradients=learned * size,
        optimizer=moments,
        activations=round(_activations(shape, case)),
        logits=_logits(shape, case),
        exchange=4 * learned * (EXCHANGED if case.rounds else 1) if case.compress else 0,
        rounds=OF_ROUNDS * learned * size if case.rounds else 0,
        runtime=_CUDA_CONTEXT if case.gpu else _CPU_RUNTIME,
        imports=0 if case.gpu else _IMPORTS,
        loading=_loading(shape, case),
    )


def _loaded(case: Case) -> str:
    """Return the precision in which the model is loaded (see hearth.model.transformers_backend)."""
    as_computed = (case.lora and not case.scratch) or case.precision == "fp64"
    return case.precision if as_computed else "fp32"


def _loading(shape: Shape, case: Case) -> int:
    """Return what of the computer's memory loading takes beyond what training does.

    What needs no conversion is mapped: the system gives those pages up whenever it lacks memory. So
    nothing is said where nobody knows what the files hold, or what `auto` comes to on a card.
    4 bits and Unsloth place each tensor where it stays; so does a rank on a CPU that keeps all.
    """
    if case.load_in_4bit or case.backend == "unsloth" or not (case.gpu or case.sharers > 1):
        return 0
    kept = _loaded(case)
    unknown = not shape.stored or (kept != "fp32" and not case.settled)
    if not case.scratch and (unknown or _STORED[kept] == shape.stored):
        return 0
    return shape.parameters * _BYTES[kept] + _CPU_RUNTIME + _IMPORTS


def adapter_parameters(shape: Shape, rank: int, targets: tuple[str, ...] | str) -> int:
    """Return the parameters of a LoRA adapter: two matrices of `rank` at each target."""
    sizes = (
        linear.features_in + linear.features_out
        for name, linear in shape.linears.items()
        if _is_target(name, targets)
    )
    return shape.num_hidden_layers * rank * sum(sizes)


def _is_target(name: str, targets: tuple[str, ...] | str) -> bool:
    if isinstance(targets, str):
        return True
    return name in {target.rpartition(".")[2] for target in targets}


def _weights(shape: Shape, case: Case) -> float:
    size = _BYTES[case.precision]
    if not case.lora:
        return shape.parameters * max(size, 4)
    if case.sharers > 1:
        held = (shape.parameters / case.sharers + _gathered(shape)) * size
        # On a CPU each layer that was given up leaves holes, as its activations do.
        return held if case.gpu else held + _HEAP * _in_the_heap(shape, size)
    if not case.load_in_4bit:
        return shape.parameters * size
    # PEFT raises what is not in 4 bits to fp32; Unsloth leaves it as it is.
    others = size if case.backend == "unsloth" else max(size, 4)
    rest = shape.parameters - shape.linear_parameters
    return shape.linear_parameters * _NF4 + rest * others


def _gathered(shape: Shape) -> float:
    """Return how many weights a rank that holds a part has whole at once.

    Two layers, the one at work and the next on its way, and the head, or the embeddings that are it
    too (see hearth.model.sharded). By design; not measured on a GPU.
    """
    return (
        2 * shape.linear_parameters / shape.num_hidden_layers + shape.vocab_size * shape.hidden_size
    )


def _in_the_heap(shape: Shape, size: int) -> int:
    """Return how much of all layers, at `size` bytes a weight, is gathered in blocks of the heap.

    What is larger has pages of its own, which the system gets back.
    """
    blocks = [linear.features_in * linear.features_out * size for linear in shape.linears.values()]
    return shape.num_hidden_layers * sum(block for block in blocks if block <= _LARGEST)


def _activations(shape: Shape, case: Case) -> float:
    """Return the bytes kept for the backward pass, logits apart, and the holes between them."""
    tokens = case.rows * case.length
    layer = _unsloth_layer(shape, case) if case.backend == "unsloth" else _layer(shape, case)
    sizes = [tokens * features * size for features, size in layer]
    # On a CPU what has been freed leaves holes, so that checkpointing saves less than it could.
    holes = 0.0 if case.gpu else _HEAP * sum(min(size, _LARGEST) for size in sizes)
    if case.gradient_checkpointing:
        # The input of each layer; then, one layer at a time, all of it again.
        inputs = shape.num_hidden_layers * tokens * shape.hidden_size * _BYTES[case.precision]
        return inputs + sum(sizes) + shape.num_hidden_layers * holes
    return shape.num_hidden_layers * (sum(sizes) + holes)


def _layer(shape: Shape, case: Case) -> list[tuple[int, int]]:
    """Return features a token, and bytes of each, of every tensor that one layer keeps.

    From Transformers' modules with PEFT's adapters. Under autocast the norms compute in fp32, and
    each adapter keeps a copy of its input of its own.
    """
    size, family = _BYTES[case.precision], shape.family
    autocast = case.precision in ("bf16", "fp16")
    hidden, inner, query = shape.hidden_size, shape.intermediate_size, shape.query_size
    kept = [(hidden, max(size, 4))] * family.norms
    if family.head_norms:
        kept += [(query, max(size, 4)), (shape.key_size, max(size, 4))]
    # Queries; keys and values, repeated for each head that shares them; and what comes of them.
    kept += [(query, size)] * 4
    kept += [(case.length, size)]  # the mask that keeps packed documents apart: a row a token
    kept += [(inner, size)] * 3  # gate, its activation, up
    # The inputs of what learns: of adapters, or of all linear layers.
    learning = case.lora_targets if case.lora else "all-linear"
    targets = [name for name in shape.linears if _is_target(name, learning)]
    for first in ("q_proj qkv_proj k_proj v_proj", "gate_proj gate_up_proj up_proj"):
        copies = sum(name in targets for name in first.split())
        kept += [(hidden, size)] * (copies if autocast else min(copies, 1))
    if "o_proj" in targets and autocast:
        kept += [(query, size)]  # else it is what comes of the attention
    if "down_proj" in targets:
        kept += [(inner, size)]
    if not case.lora:
        return kept + [(hidden, max(size, 4))] * family.norms  # the gains of the norms learn, too
    return kept + [(case.lora_rank, size)] * len(targets)


def _unsloth_layer(shape: Shape, case: Case) -> list[tuple[int, int]]:
    """Return the same for Unsloth's kernels, which share inputs and need neither copies nor mask.

    Not measured.
    """
    size = _BYTES[case.precision]
    kept = [(shape.hidden_size, size)] * (shape.family.norms + 2)
    kept += [(shape.query_size, size)] * 2 + [(shape.key_size, size)] * 2
    return kept + [(shape.intermediate_size, size)] * 2


def _logits(shape: Shape, case: Case) -> int:
    """Return the most that logits take, which is in the backward pass.

    Transformers: the logarithms of the probabilities, their gradient and that of the logits, all at
    least in fp32. Unsloth computes them in chunks.
    """
    positions = case.rows * case.length * shape.vocab_size
    whole = 3 * positions * max(_BYTES[case.precision], 4)
    return min(whole, _CHUNK) if case.backend == "unsloth" else whole
