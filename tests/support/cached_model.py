"""A model in a node's cache, as if it had been fetched: large, and of random weights."""

from __future__ import annotations

import json
import os
from pathlib import Path

from hearth.base.places import MANIFEST
from hearth.model.folder import take_stock
from hearth.model.weight_files import piece_of

ID = "owner/bulky"
NAME = "owner--bulky"


def make_cached(models: Path, size: int) -> Path:
    """Write a model of `size` bytes into the cache `models`, and return its folder.

    It is whole to whoever looks at files, and nothing can be computed with it.
    """
    folder = models / NAME
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "llama"}\n')
    (folder / "tokenizer.json").write_text("{}\n")
    tensor = {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}
    header = json.dumps({"weights": tensor}).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for start in range(0, size, 1 << 20):
            file.write(os.urandom(min(1 << 20, size - start)))
    take_stock(folder, ID, "hub", "0123abcd").write(folder / MANIFEST)
    return folder


def make_cached_shards(models: Path, layers: int, **sizes: int) -> Path:
    """Write a Llama with a file for each layer into the cache `models`.

    It is tiny, but for the `sizes` of its config.
    """
    from safetensors.torch import load_file, save_file  # late: they import torch

    from support.tiny_model import make_model

    folder = make_model(models / NAME, num_hidden_layers=layers, **sizes)
    tensors = load_file(folder / "model.safetensors")
    files = {tensor: f"part-{piece_of(tensor, layers) + 1}.safetensors" for tensor in tensors}
    (folder / "model.safetensors").unlink()
    for file in set(files.values()):
        part = {name: tensors[name] for name in tensors if files[name] == file}
        save_file(part, folder / file, {"format": "pt"})
    index = {"metadata": {}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    take_stock(folder, ID, "hub", "0123abcd").write(folder / MANIFEST)
    return folder
