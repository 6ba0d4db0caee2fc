"""The models that the layout ``vllm`` knows, and how vLLM cuts them.

Source: the loaders and layers of vLLM :data:`RELEASE`. A model whose loader has not been read is rejected.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Final

from splitops.errors import PlanError, shown

RELEASE: Final = "0.33.0"
"""The release of vLLM whose source was read."""

_Says = Mapping[str, Any]
_HEADS: Final = {"unit": "head_dim", "even": True}
_COLUMNS: Final = {"hf": "colwise", "even": True}
_ROWS: Final = {"hf": "rowwise", "even": True}
_VOCABULARY: Final = {"axis": 0, "pad_to": 64, "even": True}
_WHOLE: Final = {"replicate": True}
_ENDS: Final[Mapping[str, _Says]] = {"model.embed_tokens": _VOCABULARY, "lm_head": _VOCABULARY}
_ATTENTION: Final[Mapping[str, _Says]] = {
    "self_attn.q_proj": {"hf": "colwise", **_HEADS},
    "self_attn.k_proj": {"hf": "colwise", "replicate": True, **_HEADS},
    "self_attn.v_proj": {"hf": "colwise", "replicate": True, **_HEADS},
    "self_attn.o_proj": _ROWS,
}
_FUSED_ATTENTION: Final[Mapping[str, _Says]] = {
    "self_attn.qkv_proj": {
        "axis": 0,
        "sections": [
            "num_attention_heads * head_dim",
            "num_key_value_heads * head_dim",
            "num_key_value_heads * head_dim",
        ],
        "replicate": [1, 2],
        **_HEADS,
    },
    "self_attn.o_proj": _ROWS,
}
_GATED: Final[Mapping[str, _Says]] = {
    "mlp.gate_proj": _COLUMNS,
    "mlp.up_proj": _COLUMNS,
    "mlp.down_proj": _ROWS,
}
_FUSED_GATED: Final[Mapping[str, _Says]] = {
    "mlp.gate_up_proj": {"axis": 0, "sections": ["intermediate_size", "intermediate_size"], "even": True},
    "mlp.down_proj": _ROWS,
}


def _modules(*layers: Mapping[str, _Says]) -> Mapping[str, _Says]:
    """Return the rules of a model's modules, by globs, from those of its layers."""
    inside = {f"model.layers.*.{name}": rule for each in layers for name, rule in each.items()}
    return MappingProxyType({**_ENDS, **inside})


_DENSE: Final = _modules(_ATTENTION, _GATED)
MODELS: Final[Mapping[str, Mapping[str, _Says]]] = MappingProxyType(
    {
        "LlamaForCausalLM": _DENSE,
        "MistralForCausalLM": _DENSE,
        "Qwen2ForCausalLM": _DENSE,
        "Qwen3ForCausalLM": _DENSE,
        "Phi3ForCausalLM": _modules(_FUSED_ATTENTION, _FUSED_GATED),
        "MixtralForCausalLM": _modules(
            _ATTENTION,
            {
                "block_sparse_moe.gate": _WHOLE,
                "block_sparse_moe.experts.*.w1": _COLUMNS,
                "block_sparse_moe.experts.*.w3": _COLUMNS,
                "block_sparse_moe.experts.*.w2": _ROWS,
            },
        ),
        "Qwen3MoeForCausalLM": _modules(
            _ATTENTION,
            {
                "mlp.gate": _WHOLE,
                "mlp.experts.*.gate_proj": _COLUMNS,
                "mlp.experts.*.up_proj": _COLUMNS,
                "mlp.experts.*.down_proj": _ROWS,
            },
            _GATED,
        ),
    }
)
"""By architecture, how the modules are cut that have tensors of rank 2 or more, by globs of their names."""


def prove_known(config: Mapping[str, Any], names: Collection[str] = ()) -> str:
    """Return the architecture of a model that the layout ``vllm`` knows.

    Args:
        config: its ``config.json``.
        names: of its tensors.

    Raises:
        PlanError: its loader has not been read, its weights are quantised, or its embeddings are not tied as
            the configuration says.

    Examples:
        >>> prove_known({"architectures": ["LlamaForCausalLM"]})
        'LlamaForCausalLM'
    """
    named = config.get("architectures")
    found = named[0] if isinstance(named, list) and len(named) == 1 else None
    if not isinstance(found, str) or found not in MODELS:
        raise PlanError(
            f"layout vllm does not know architectures {shown(named)}: it knows {', '.join(MODELS)}, as vLLM "
            f"{RELEASE} loads them; write the layout hf instead (--layout hf)"
        )
    if "quantization_config" in config:
        raise PlanError(
            "vLLM changes quantised weights as it loads them: layout vllm takes none; write the layout hf "
            "instead (--layout hf)"
        )
    tied = bool(config.get("tie_word_embeddings", False))
    if "model.embed_tokens.weight" in names and tied == ("lm_head.weight" in names):
        raise PlanError(
            f"config.json says tie_word_embeddings = {str(tied).lower()}, and the checkpoint has "
            f"{'a' if tied else 'no'} lm_head.weight: vLLM would not load these ranks"
        )
    return found
