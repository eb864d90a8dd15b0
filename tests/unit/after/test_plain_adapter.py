"""An adapter as the converter reads it: plain LoRA."""

from __future__ import annotations

import json

import pytest
import yaml

from hearth.after.plain_adapter import CONFIG, WEIGHTS, why_not, write_plain


def adapter(folder, **config):
    folder.mkdir()
    (folder / CONFIG).write_text(json.dumps({"r": 16, "lora_alpha": 8, **config}))
    (folder / WEIGHTS).write_bytes(b"weights")
    return folder


@pytest.mark.parametrize(("rslora", "alpha"), [(False, 8), (True, 32)])
def test_rslora_gets_the_alpha_that_scales_alike(tmp_path, rslora, alpha):
    write_plain(adapter(tmp_path / "adapter", use_rslora=rslora), tmp_path / "plain", "night")
    assert json.loads((tmp_path / "plain" / CONFIG).read_text())["lora_alpha"] == alpha
    assert (tmp_path / "plain" / WEIGHTS).read_bytes() == b"weights"
    _, head, _ = (tmp_path / "plain" / "README.md").read_text().split("---\n")
    assert yaml.safe_load(head) == {"model_name": "night"}


def test_dora_is_not_for_gguf(tmp_path):
    assert "DoRA" in why_not(adapter(tmp_path / "dora", use_dora=True))
    assert not why_not(adapter(tmp_path / "lora"))
