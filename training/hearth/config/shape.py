"""The shape of a model, with the field names of its config.json. Plain data, no torch.

Decoders of the kinds in `FAMILIES` are supported, dense ones and mixtures of experts; the shape of
any other is unknown, not guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from hearth.base.files import read_object
from hearth.config.declared import CONFIG, problems


@dataclass(frozen=True)
class _Family:
    """Architectural features of one kind of decoder.

    Attributes:
        norms: number of norms over the hidden size in each layer.
        head_norms: whether queries and keys are normalised per head.
        biases: which layers have a bias: those that make queries, keys and values, or all of them,
            norms included.
        fused: whether one matrix makes queries, keys and values, and another gate and up.
        gated: whether the MLP has a gate beside its up-projection.
        positions: whether each position has a learned embedding.
        names: names of the linear layers that differ from Llama's.
        tied: whether input and output embeddings are tied if the config does not say.
        divides: whether `parallel: pipeline` can divide its layers, see `hearth.model.divided`.
        sizes: names in its config.json of sizes that have another name in `Shape`.
    """

    norms: int = 2
    head_norms: bool = False
    biases: Literal["none", "qkv", "all"] = "none"
    fused: bool = False
    gated: bool = True
    positions: bool = False
    tied: bool = False
    divides: bool = True
    names: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, str] = field(default_factory=dict)


_GPT2 = {"qkv_proj": "c_attn", "o_proj": "c_proj", "up_proj": "c_fc", "down_proj": "c_proj"}
_GLM4 = {"n_routed_experts": "num_experts", "attention_bias": "qkv_bias", "use_qk_norm": "qk_norm"}
_MIXTRAL = {"num_local_experts": "num_experts", "intermediate_size": "moe_intermediate_size"}

FAMILIES: Mapping[str, _Family] = {
    "llama": _Family(),
    "mistral": _Family(),
    "granite": _Family(),
    "smollm3": _Family(tied=True),
    "qwen2": _Family(biases="qkv"),
    "qwen3": _Family(head_norms=True),
    "gemma3": _Family(norms=4, head_norms=True, tied=True, divides=False),
    "gemma3_text": _Family(norms=4, head_norms=True, tied=True),
    "phi3": _Family(fused=True),
    "gpt2": _Family(biases="all", fused=True, gated=False, positions=True, tied=True, names=_GPT2),
    "mixtral": _Family(sizes=_MIXTRAL),
    # Published as num_experts, and written by Transformers 5 as num_local_experts.
    "qwen3_moe": _Family(head_norms=True, sizes={"num_local_experts": "num_experts"}),
    "glm4_moe": _Family(sizes=_GLM4),
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
        intermediate_size: of the MLP in a layer without experts.
        max_position_embeddings: positions with an embedding, in a family that learns them.
        num_experts: of a layer, in a mixture of experts; each token takes `num_experts_per_tok`.
        moe_intermediate_size: of one expert.
        n_shared_experts: experts that every token takes, computed as one MLP.
        first_k_dense_replace: number of first layers without experts.
        qkv_bias, qk_norm: whether queries, keys and values have a bias, and queries and keys are
            normalised per head, in a family whose models differ in that.
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
    max_position_embeddings: int = 0
    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    n_shared_experts: int = 0
    first_k_dense_replace: int = 0
    qkv_bias: bool = False
    qk_norm: bool = False

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
    def head_norms(self) -> bool:
        """Whether queries and keys are normalised per head."""
        return self.family.head_norms or self.qk_norm

    @property
    def expert_layers(self) -> int:
        """Number of layers with experts."""
        return self.num_hidden_layers - self.first_k_dense_replace if self.num_experts else 0

    @property
    def shared_size(self) -> int:
        """Features within the MLP that every token takes, in all or nearly all layers."""
        if self.num_experts:
            return self.n_shared_experts * self.moe_intermediate_size
        return self.intermediate_size

    @property
    def linears(self) -> dict[str, Linear]:
        """The linear layers of one decoder layer, by the name of their like in Llama or Phi-3.

        Of a layer with experts, if the model has any: those that every token takes.
        """
        return self._linears(self.shared_size)

    def sum_of_linears(self, size: Callable[[str, Linear], int]) -> int:
        """Return the sum of `size`, of a linear layer by name, over all decoder layers.

        Experts do not count.
        """
        sparse = self.expert_layers
        kinds = (
            (sparse, self.linears),
            (self.num_hidden_layers - sparse, self._linears(self.intermediate_size)),
        )
        return sum(count * sum(size(*each) for each in kind.items()) for count, kind in kinds)

    def _linears(self, inner: int) -> dict[str, Linear]:
        """Return the linear layers of a decoder layer whose MLP has `inner` features, if any."""
        hidden, query, key = self.hidden_size, self.query_size, self.key_size
        if self.family.fused:
            first = {"qkv_proj": Linear(hidden, query + 2 * key)}
            second = {"gate_up_proj": Linear(hidden, 2 * inner)}
        else:
            pairs = (("q_proj", query), ("k_proj", key), ("v_proj", key))
            first = {name: Linear(hidden, size) for name, size in pairs}
            second = {name: Linear(hidden, inner) for name in ("gate_proj", "up_proj")}
        if not self.family.gated:
            second = {"up_proj": Linear(hidden, inner)}
        last = {"down_proj": Linear(inner, hidden)}
        found = first | {"o_proj": Linear(query, hidden)} | second | last
        return {name: linear for name, linear in found.items() if linear.size}

    @property
    def linear_parameters(self) -> int:
        """Weights of the decoder's linear layers, experts included: 4 bits shrink them."""
        shared = self.sum_of_linears(lambda _, linear: linear.size)
        return shared + self.expert_layers * self.num_experts * self.expert_parameters

    @property
    def expert_parameters(self) -> int:
        """Weights of one expert: gate, up and down."""
        return 3 * self.hidden_size * self.moe_intermediate_size

    @property
    def embedding_parameters(self) -> int:
        """Weights of the embeddings, including the output's unless they are tied."""
        return self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)

    @property
    def decoder_parameters(self) -> int:
        """Parameters of the decoder with its embeddings, added up from the sizes."""
        family = self.family
        norm = self.hidden_size * (2 if family.biases == "all" else 1)
        norms = family.norms * norm + 2 * self.head_dim * self.head_norms
        qkv = self.query_size + 2 * self.key_size
        biases = {
            "none": qkv * self.qkv_bias,
            "qkv": qkv,
            "all": sum(linear.features_out for linear in self.linears.values()),
        }[family.biases]
        positions = self.max_position_embeddings * self.hidden_size * family.positions
        routers = self.expert_layers * self.num_experts * self.hidden_size
        rest = self.num_hidden_layers * (norms + biases) + norm + positions + routers
        return self.linear_parameters + self.embedding_parameters + rest


def shape_of(config: Mapping[str, Any]) -> Shape | None:
    """Return the shape that a model's `config` (the content of config.json) describes.

    None if its kind is unknown, if it has parts besides the decoder, or experts in some of its
    layers only (beyond the first ones).
    """
    if "vision_config" in config or "quantization_config" in config:
        return None
    if str(config.get("model_type")) not in FAMILIES or problems({CONFIG: config}):
        return None
    if config.get("decoder_sparse_step", 1) != 1 or config.get("mlp_only_layers"):
        return None
    try:
        config = _from_gpt2(config) if config["model_type"] == "gpt2" else _renamed(config)
        heads = int(config["num_attention_heads"])
        usual = {
            "num_key_value_heads": heads,
            "head_dim": int(config["hidden_size"]) // heads,
            "tie_word_embeddings": FAMILIES[config["model_type"]].tied,
        }
        given = {name: size for name, size in config.items() if size is not None}
        shape = TypeAdapter(Shape).validate_python(usual | given | {"parameters": 0})
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return None
    return Shape(**{**vars(shape), "parameters": shape.decoder_parameters})


def _renamed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes in `config` by their names in `Shape`."""
    names = FAMILIES[config["model_type"]].sizes
    return {**config, **{name: config[own] for own, name in names.items() if own in config}}


def _from_gpt2(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes in GPT-2's config.json by the names that all other kinds give them."""
    named = {
        "hidden_size": config.get("n_embd"),
        "num_hidden_layers": config.get("n_layer"),
        "num_attention_heads": config.get("n_head"),
        "max_position_embeddings": config.get("n_positions"),
        "intermediate_size": config.get("n_inner") or 4 * config["n_embd"],
    }
    kept = ("model_type", "vocab_size", "tie_word_embeddings")
    return named | {name: config[name] for name in kept if name in config}


def shape_in(folder: Path) -> Shape | None:
    """Return the shape of the model in `folder`, or None if it is unknown."""
    config = read_object(folder / "config.json")
    return shape_of(config) if config is not None else None
