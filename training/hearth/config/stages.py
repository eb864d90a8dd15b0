"""Settings that `parallel: pipeline` rules out, each with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hearth.config.settings import Settings


def pipeline_conflicts(settings: Settings) -> list[tuple[bool, str]]:
    """Return conflicts with `parallel: pipeline`, each with whether these settings have it."""
    conflicts = [
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
    return [(settings.in_stages and conflict, finding) for conflict, finding in conflicts]
