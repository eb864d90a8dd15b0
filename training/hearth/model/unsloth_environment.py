"""Environment variables that Unsloth reads at its import; one sets the budget of its logits.

Without torch: the estimate of a run's memory counts with the same budget.
"""

from __future__ import annotations

import os
from pathlib import Path

LOGITS = 1 << 29
"""Bytes of a chunk of logits in Unsloth's cross entropy.

By default it takes half of the memory that is free at the first loss, before the optimizer and the
activations have theirs, and up to 4 GiB; and how it cuts the chunks would depend on that moment.
"""


def prepare_environment(folder: Path) -> None:
    """Set Unsloth's variables, except those the user has set; its generated code goes to `folder`.

    By default that code would go to the current folder. Inputs of layers that wait in host memory
    for the backward pass would be rounded to bf16, those of an fp32 run too.
    """
    os.environ.setdefault("UNSLOTH_OFFLOAD_FP32", "exact")
    os.environ.setdefault("UNSLOTH_COMPILE_LOCATION", str(folder))
    os.environ.setdefault("UNSLOTH_CE_LOSS_TARGET_GB", str(LOGITS / (1 << 30)))
