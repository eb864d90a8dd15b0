"""A model of a kind that Transformers does not know: it runs only with the code in its folder."""

from __future__ import annotations

import json
from pathlib import Path

from support.tiny_model import make_model

CODE = ["configuration_hermit.py", "modeling_hermit.py"]
_CONFIGURATION = """
from transformers import LlamaConfig


class HermitConfig(LlamaConfig):
    model_type = "hermit"
"""
# As much code of this kind, it computes the logits of all positions or of none.
_MODELING = """
from transformers import LlamaForCausalLM

from .configuration_hermit import HermitConfig


class HermitForCausalLM(LlamaForCausalLM):
    config_class = HermitConfig

    def forward(self, input_ids=None, position_ids=None, attention_mask=None, **others):
        return super().forward(
            input_ids=input_ids,
            position_ids=position_ids,
            attention_mask=attention_mask,
            **{name: others[name] for name in others if name != "logits_to_keep"},
        )
"""


def make_hermit(folder: Path) -> Path:
    """Write a tiny model that needs code of its own, with that code, to `folder`; return it."""
    make_model(folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config |= {
        "model_type": "hermit",
        "architectures": ["HermitForCausalLM"],
        "auto_map": {
            "AutoConfig": "configuration_hermit.HermitConfig",
            "AutoModelForCausalLM": "modeling_hermit.HermitForCausalLM",
        },
    }
    path.write_text(json.dumps(config))
    for name, text in zip(CODE, (_CONFIGURATION, _MODELING), strict=True):
        (folder / name).write_text(text.lstrip())
    return folder
