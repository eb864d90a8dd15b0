"""Random numbers of a forward pass: the seed of dropout, and NEFTune (arXiv:2310.05914)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from hearth.data.rows import Batch


def seed_torch(seed: int, device: torch.device) -> None:
    """Have torch draw by `seed` from now on, on the processor and on `device`, the current GPU.

    The numbers are those after `torch.manual_seed`. Where no GPU is in use, that formats a stack
    trace each time: 1 ms before each layer, 7% of the passes of a stage on a processor.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


class Noise:
    """Adds uniform noise to each token's embedding, at most alpha / sqrt(length * width).

    The length is that of the token's document, as without packing. Transformers' own hook draws by
    the micro-batch and scales by its padded length; here each row has a seed, so the noise depends
    neither on the rank that computes the row nor on the rows beside it.
    """

    def __init__(self, embeddings: torch.nn.Module, alpha: float) -> None:
        self._alpha = alpha
        self._next: tuple[Batch, Sequence[int]] | None = None
        embeddings.register_forward_hook(self._add)

    def draw_for(self, batch: Batch, seeds: Sequence[int]) -> None:
        """Add noise to `batch`, drawn by one seed per row, in the next forward pass."""
        self._next = batch, seeds

    def _add(self, _module: torch.nn.Module, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
        """Return the embeddings `output` with the noise of the pass, if it has any."""
        if self._next is None:
            return output
        (batch, seeds), self._next = self._next, None
        length, width = batch.input_ids.shape[1], output.shape[-1]
        # Drawn on the CPU in the order of the tokens: equal on every device and for any padding.
        drawn = np.stack(
            [
                np.random.default_rng(seed % 2**64).random((length, width), dtype=np.float32)
                for seed in seeds
            ]
        )
        lengths = np.repeat(batch.packed_seq_lengths, batch.packed_seq_lengths)
        limits = (self._alpha / np.sqrt(lengths * width)).astype(np.float32)
        noise = (2 * drawn - 1) * limits.reshape(*batch.input_ids.shape, 1)
        return output + torch.from_numpy(noise).reshape(output.shape).to(output)
