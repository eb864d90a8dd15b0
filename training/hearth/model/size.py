"""How large a model is, by its files and without loading it."""

from __future__ import annotations

import math
from pathlib import Path

from safetensors import safe_open


def weights_in(folder: Path) -> int:
    """Return how many weights the model in `folder` has."""
    count = 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            names = file.keys()
            count += sum(math.prod(file.get_slice(name).get_shape()) for name in names)
    return count
