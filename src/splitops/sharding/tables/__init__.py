"""Tables of sharding plans (of transformers and vLLM) and of rules for fused tensors, by type of model.

``python -m dev.tools.transformers_plans`` generates ``transformers.json`` from an installed transformers,
which splitops itself does not import.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

from splitops.errors import PlanError, shown

_GPT_OSS: Final = {
    "model.layers.*.mlp.experts.*_proj*": "grouped_gemm",
    "lm_head.*": "colwise_gather_output",
}
"""The expert-parallel plan of ``GptOssConfig``, extended to MXFP4 tensors, and the style of ``lm_head``."""


@cache
def read_table(name: str) -> Mapping[str, Any]:
    """Read a .json or .toml file of this package."""
    text = files(__package__).joinpath(name).read_text("utf-8")
    found: dict[str, Any] = json.loads(text) if name.endswith(".json") else tomllib.loads(text)
    return found


def find_declared_plan(config: Mapping[str, Any]) -> Mapping[str, str]:
    """Return tensor-parallel styles, keyed by glob, as the model's class in transformers declares them.

    Examples:
        >>> find_declared_plan({"architectures": ["LlamaForCausalLM"]})["model.layers.*.self_attn.o_proj.*"]
        'rowwise'
    """
    if config.get("model_type") == "gpt_oss":  # the plan of transformers shards only experts
        return _GPT_OSS
    known = read_table("transformers.json")
    architectures, kind = config.get("architectures"), config.get("model_type")
    named = architectures if isinstance(architectures, list) else []
    for names, key in (*((known["architectures"], name) for name in named), (known["model_types"], kind)):
        if isinstance(key, str) and key in names:
            found: Mapping[str, str] = known["plans"][names[key]]
            return found
    of = f"architectures {shown(named)} and " if named else ""
    raise PlanError(f"no plan for {of}model_type {shown(kind)}: write one and pass plan= (--plan FILE)")


def find_engine_plan(config: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return the rules by which vLLM shards the modules of a model, keyed by glob."""
    known = read_table("vllm.toml")
    parts = known["models"][check_known(config)]
    return {glob: rule for part in parts for glob, rule in known["modules"][part].items()}


def check_known(config: Mapping[str, Any], names: Collection[str] = ()) -> str:
    """Check that the layout ``vllm`` supports a model with tensors ``names``, and return its architecture.

    Examples:
        >>> check_known({"architectures": ["LlamaForCausalLM"]})
        'LlamaForCausalLM'
    """
    named = config.get("architectures")
    found = named[0] if isinstance(named, list) and len(named) == 1 else None
    known = read_table("vllm.toml")
    if not isinstance(found, str) or found not in known["models"]:
        raise PlanError(
            f"layout vllm does not support architectures {shown(named)}. It supports "
            f"{', '.join(known['models'])}, as in vLLM {known['release']}. Use layout hf (--layout hf)"
        )
    if "quantization_config" in config:
        raise PlanError(
            "layout vllm does not support quantised weights, which vLLM changes when it loads them. Use "
            "layout hf (--layout hf)"
        )
    tied = bool(config.get("tie_word_embeddings", False))
    if "model.embed_tokens.weight" in names and tied == ("lm_head.weight" in names):
        raise PlanError(
            f"config.json sets tie_word_embeddings = {str(tied).lower()}, but the checkpoint has "
            f"{'an' if tied else 'no'} lm_head.weight: vLLM would not load these ranks"
        )
    return found


def find_fusions(config: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the rules of :func:`splitops.sharding.fuse` for a model's fused tensors.

    Examples:
        >>> falcon = {"model_type": "falcon", "new_decoder_architecture": False, "multi_query": True}
        >>> find_fusions(falcon)[0]["sections"]
        ['num_attention_heads * head_dim', 'head_dim', 'head_dim']
    """
    kind = config.get("model_type")
    models = read_table("fusions.toml")["model"]
    for model in models:
        if kind in model["types"] and all(config.get(k) == v for k, v in model.get("when", {}).items()):
            rules: Sequence[Mapping[str, Any]] = model["rule"]
            if "quantization_config" in config:
                _check_by_rows(config["quantization_config"], rules)
            return rules
    known = sorted({each for model in models for each in model["types"]})
    raise PlanError(
        f"no rules for fused tensors of model_type {shown(kind)} with this configuration: write a plan "
        f"(--plan FILE). Supported types are {', '.join(known)}"
    )


def _check_by_rows(stated: Any, rules: Sequence[Mapping[str, Any]]) -> None:
    """Check that ``stated``, a ``quantization_config``, allows fusing weights and their scales by rows."""
    method = stated.get("quant_method") if isinstance(stated, Mapping) else None
    unpacked = ("float-quantized", "int-quantized", "naive-quantized")
    known = method in ("modelopt", "nvfp4") or (
        method == "compressed-tensors" and stated.get("format") in unpacked
    )
    if not known or not all("{leaf}" in rule["fused"] for rule in rules):
        raise PlanError(
            f"no rules for the scales of quant_method {shown(method)}: write a plan (--plan FILE)"
        )
