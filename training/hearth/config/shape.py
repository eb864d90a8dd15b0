"""The shape of a model, with the field names of its config.json. Plain data, no torch.

Dense decoders with a gated MLP are supported; the shape of any other kind is unknown, not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from hearth.base.files import read_object


@dataclass(frozen=True)
class _Family:
    """Architectural features of one kind of decoder.

    Attributes:
        norms: number of norms over the hidden size in each layer.
        head_norms: whether queries and keys are normalised per head.
        biases: whether the projections of queries, keys and values have a bias.
        fused: whether one matrix makes queries, keys and values, and another gate and up.
        tied: whether input and output embeddings are tied if the config does not say.
    """

    norms: int = 2
    head_norms: bool = False
    biases: bool = False
    fused: bool = False
    tied: bool = False


FAMILIES: Mapping[str, _Family] = {
    "llama": _Family(),
    "mistral": _Family(),
    "granite": _Family(),
    "smollm3": _Family(tied=True),
    "qwen2": _Family(biases=True),
    "qwen3": _Family(head_norms=True),
    "gemma3": _Family(norms=4, head_norms=True, tied=True),
    "gemma3_text": _Family(norms=4, head_norms=True, tied=True),
    "phi3": _Family(fused=True),
}
"""By `model_type`. Source: the modules of transformers of these names."""


@dataclass(frozen=True)
class Linear:
    """Input and output features of the linear layers of one name."""

    features_in: int
    features_out: int

    @property
    def size(self) -> int:
        """Number of weights of the matrix."""
        return self.features_in * self.features_out


@dataclass(frozen=True)
class Shape:
    """A decoder's sizes, named as in its config.json.

    Attributes:
        parameters: of the whole model, including parts such as a vision tower.
    """

    model_type: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    tie_word_embeddings: bool
    parameters: int

    def __post_init__(self) -> None:
        if self.model_type not in FAMILIES:
            raise ValueError(f"model_type {self.model_type} is none of {', '.join(FAMILIES)}")

    @property
    def family(self) -> _Family:
        """Architectural features of this kind of decoder."""
        return FAMILIES[self.model_type]

    @property
    def query_size(self) -> int:
        """Features of the queries of one token, over all heads."""
        return self.num_attention_heads * self.head_dim

    @property
    def key_size(self) -> int:
        """Features of the keys of one token, and of its values."""
        return self.num_key_value_heads * self.head_dim

    @property
    def linears(self) -> dict[str, Linear]:
        """The linear layers of one decoder layer, by name."""
        hidden, inner = self.hidden_size, self.intermediate_size
        query, key = self.query_size, self.key_size
        if self.family.fused:
            first = {"qkv_proj": Linear(hidden, query + 2 * key)}
            second = {"gate_up_proj": Linear(hidden, 2 * inner)}
        else:
            pairs = (("q_proj", query), ("k_proj", key), ("v_proj", key))
            first = {name: Linear(hidden, size) for name, size in pairs}
            second = {name: Linear(hidden, inner) for name in ("gate_proj", "up_proj")}
        last = {"down_proj": Linear(inner, hidden)}
        return first | {"o_proj": Linear(query, hidden)} | second | last

    @property
    def linear_parameters(self) -> int:
        """Weights of the decoder's linear layers, which 4-bit quantisation shrinks."""
        return self.num_hidden_layers * sum(linear.size for linear in self.linears.values())

    @property
    def embedding_parameters(self) -> int:
        """Weights of the embeddings, including the output's unless they are tied."""
        return self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)

    @property
    def decoder_parameters(self) -> int:
        """Parameters of the decoder with its embeddings, added up from the sizes."""
        family = self.family
        norms = family.norms * self.hidden_size + 2 * self.head_dim * family.head_norms
        biases = (self.query_size + 2 * self.key_size) * family.biases
        rest = self.num_hidden_layers * (norms + biases) + self.hidden_size
        return self.linear_parameters + self.embedding_parameters + rest


def shape_of(config: Mapping[str, Any]) -> Shape | None:
    """Return the shape that a model's `config` (the content of config.json) describes.

    None if its kind is unknown, or if it has parts besides the decoder.
    """
    if "vision_config" in config or "quantization_config" in config:
        return None
    if config.get("model_type") not in FAMILIES:
        return None
    try:
        heads = int(config["num_attention_heads"])
        usual = {
            "num_key_value_heads": heads,
            "head_dim": int(config["hidden_size"]) // heads,
            "tie_word_embeddings": FAMILIES[config["model_type"]].tied,
        }
        given = {name: size for name, size in config.items() if size is not None}
        shape = TypeAdapter(Shape).validate_python(usual | given | {"parameters": 0})
    except (KeyError, TypeError, ValueError):
        return None
    return Shape(**{**vars(shape), "parameters": shape.decoder_parameters})


def shape_in(folder: Path) -> Shape | None:
    """Return the shape of the model in `folder`, or None if it is unknown."""
    config = read_object(folder / "config.json")
    return shape_of(config) if config is not None else None
