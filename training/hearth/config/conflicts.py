"""Conflicts between settings that are each valid on their own."""

from __future__ import annotations

from hearth.config.settings import Settings

Conflict = tuple[bool, str]
"""Whether these settings have a conflict, and what to say of it."""


def conflicts_of(settings: Settings) -> list[str]:
    """Return the conflicts of `settings`, each with its solution."""
    fsdp, unsloth = settings.parallel == "fsdp", settings.backend == "unsloth"
    rounds = settings.sync_every > 1
    bits = 4 if settings.load_in_4bit else 8
    quantised, small = settings.load_in_4bit or settings.load_in_8bit, f"load_in_{bits}bit"
    found: list[Conflict] = [
        (
            settings.streaming and settings.max_steps is None,
            "streaming: the length of a stream is not known beforehand; set max_steps",
        ),
        (
            settings.streaming and not isinstance(settings.dataset, str),
            "streaming: a mixture is read before it is trained on; take streaming=off, or "
            "one data set",
        ),
        (
            settings.load_in_4bit and settings.load_in_8bit,
            "load_in_8bit: the weights are stored in 4 bits or in 8; take load_in_4bit=off "
            "(large presets set it), or load_in_8bit=off",
        ),
        (
            fsdp and quantised,
            f"parallel: fsdp cannot shard weights in {bits} bits; take {small}=off, or "
            f"parallel=ddp, which is far faster where a card holds the model in {bits} bits",
        ),
        (
            fsdp and unsloth,
            "parallel: fsdp shards Transformers' layers, and Unsloth replaces them; take "
            "backend=auto or backend=transformers",
        ),
        (
            fsdp and not settings.lora,
            "parallel: fsdp trains an adapter only; with lora=off take parallel=ddp",
        ),
        *_of_pipeline(settings),
        *_of_preferences(settings),
        (
            settings.compile and unsloth,
            "compile: Unsloth has its own kernels, and compiles what is left itself; take "
            "compile=off, or backend=transformers",
        ),
        (
            settings.compile and fsdp,
            "compile: with parallel=fsdp a step waits for the network, not for the layers; "
            "take compile=off, or parallel=ddp",
        ),
        (
            settings.trust_remote_code and unsloth,
            "trust_remote_code: Unsloth has its own code for the models that it knows; take "
            "backend=auto or backend=transformers",
        ),
        (
            settings.dropout is not None and unsloth,
            "dropout: Unsloth takes a model's layers as they are; take backend=auto or "
            "backend=transformers",
        ),
        (
            rounds and fsdp,
            "sync_every: local steps need the whole model on every rank; take parallel=ddp, "
            "or sync_every=1",
        ),
        (
            rounds and settings.optimizer == "adamw_8bit",
            "sync_every: the 8-bit state of adamw_8bit cannot be averaged; take "
            "optimizer=adamw, or sync_every=1",
        ),
        (
            rounds and settings.optimizer == "muon",
            "sync_every: muon divides its work over the ranks in every step, and local steps "
            "are taken alone; take optimizer=adamw, or sync_every=1",
        ),
        (
            settings.lora and settings.optimizer == "muon",
            "optimizer: muon works on whole matrices, and its step on LoRA's A and B would "
            "depend on how their product is divided between them; take optimizer=adamw, or "
            "lora=off",
        ),
        (
            rounds and settings.precision == "fp16",
            "sync_every: with precision=fp16 each rank would find its own loss scale; take "
            "precision=fp32 or bf16, or sync_every=1",
        ),
        (
            rounds and settings.replay is not None,
            "sync_every: the record that replay reads does not say where its rounds ended; "
            "leave replay out, or take sync_every=1",
        ),
        (
            settings.onto is not None and not settings.lora,
            "onto: it goes on training an adapter, and lora=off trains none; take lora=on, or for "
            "a model whose weights were all trained model=FOLDER instead",
        ),
        (
            settings.onto is not None and settings.scratch,
            "onto: an adapter fits the weights that it was trained on, and scratch=on draws "
            "others; take scratch=off",
        ),
        (
            settings.scratch and settings.lora and settings.onto is None,
            "scratch: random weights must all be trained, and an adapter trains none of them; "
            "take lora=off too",
        ),
        (
            quantised and not settings.lora,
            f"{small}: weights in {bits} bits cannot be trained, and lora=off trains all of "
            f"them; take {small}=off, or lora=on",
        ),
        (
            quantised and settings.precision == "fp64",
            f"{small}: weights in {bits} bits compute in fp32 at most; with precision=fp64 "
            f"take {small}=off",
        ),
        (
            settings.dora and settings.load_in_8bit,
            "dora: PEFT loses the scales of weights in 8 bits on a CPU; take load_in_4bit=on "
            "instead of load_in_8bit, or dora=off",
        ),
        *(
            (
                getattr(settings, name) and not settings.lora,
                f"{name}: it changes the adapter, and lora=off trains none; take {name}=off, "
                "or lora=on",
            )
            for name in ("rslora", "dora")
        ),
        (
            settings.early_stop is not None and settings.eval_every is None,
            "early_stop: it counts the evaluations of eval_every; give eval_every=STEPS too, "
            "or take early_stop=none",
        ),
        (
            settings.eval_limit is not None and not settings.eval,
            "eval_limit: it counts only together with eval=TASKS; leave it out",
        ),
        (
            unsloth and not settings.lora,
            "backend: Unsloth is used for LoRA only; with lora=off take backend=auto or "
            "backend=transformers",
        ),
    ]
    return [text for applies, text in found if applies]


def _of_preferences(settings: Settings) -> list[Conflict]:
    """Return the conflicts with an objective of preferences, or with its settings without one."""
    objective = settings.objective
    found = [
        (
            settings.in_stages or settings.parallel == "fsdp",
            f"objective: {objective} needs the log-probabilities of whole answers, and with "
            f"parallel={settings.parallel} no rank has the whole model; take parallel=ddp",
        ),
        (
            settings.streaming,
            f"objective: {objective} computes a reference for all data before the first step, and "
            "a stream has no end; take streaming=off",
        ),
        (
            settings.scratch,
            f"objective: {objective} teaches a model which of its answers are better, and one of "
            "random weights has none; train it with objective=sft first",
        ),
    ]
    other = {
        "dpo_loss": settings.dpo_loss != "sigmoid",
        "label_smoothing": settings.label_smoothing > 0,
        "sft_weight": settings.sft_weight > 0,
    }
    return [
        *((objective != "sft" and applies, text) for applies, text in found),
        *(
            (objective != "dpo" and given, f"{name}: it belongs to objective=dpo; leave it out")
            for name, given in other.items()
        ),
        (
            settings.label_smoothing > 0 and settings.dpo_loss == "ipo",
            "label_smoothing: dpo_loss=ipo has none; leave one of them out",
        ),
    ]


def _of_pipeline(settings: Settings) -> list[Conflict]:
    """Return the conflicts with `parallel: pipeline`."""
    found = [
        (
            not settings.lora,
            "parallel: pipeline trains an adapter only; with lora=off take parallel=ddp",
        ),
        (
            settings.backend == "unsloth",
            "parallel: pipeline divides Transformers' layers, and Unsloth replaces the whole "
            "model; take backend=auto or backend=transformers",
        ),
        (
            settings.compile,
            "compile: the layers of a pipeline's stage are not compiled; take compile=off, or "
            "parallel=ddp",
        ),
        (
            settings.trust_remote_code,
            "trust_remote_code: parallel=pipeline divides models that Transformers knows, not a "
            "model's own code; take parallel=ddp or parallel=fsdp",
        ),
        (
            settings.sync_every > 1,
            "sync_every: local steps need the whole model on every rank; take parallel=ddp, or "
            "sync_every=1",
        ),
        (
            settings.compress != "none",
            "compress: with parallel=pipeline no gradients of weights are exchanged; take "
            "compress=none",
        ),
        (
            settings.replay is not None,
            "replay: a pipeline divides the layers over the ranks, not the rows, so there is no "
            "split to repeat; leave replay out, or take parallel=ddp",
        ),
    ]
    return [(settings.in_stages and applies, text) for applies, text in found]
