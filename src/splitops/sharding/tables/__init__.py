"""The plans that configurations of transformers declare, by the kind of model: a table that ships with us.

``python -m dev.tools.transformers_plans`` makes it from an installed transformers, which nothing else
imports.
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
"""``GptOssConfig.base_model_ep_plan``, also of the tensors of MXFP4: ``_blocks`` and ``_scales``."""


@cache
def table(name: str) -> Mapping[str, Any]:
    """Return a table by the name of its file."""
    text = files(__package__).joinpath(name).read_text("utf-8")
    found: dict[str, Any] = json.loads(text) if name.endswith(".json") else tomllib.loads(text)
    return found


def declared_plan(config: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the words of a model's tensors, by globs, as its configuration's class declares them.

    Examples:
        >>> declared_plan({"architectures": ["LlamaForCausalLM"]})["model.layers.*.self_attn.o_proj.*"]
        'rowwise'
    """
    if config.get("model_type") == "gpt_oss":  # its plan for experts alone also cuts their blocks
        return _GPT_OSS
    known = table("transformers.json")
    architectures, kind = config.get("architectures"), config.get("model_type")
    named = architectures if isinstance(architectures, list) else []
    for names, key in (*((known["architectures"], name) for name in named), (known["model_types"], kind)):
        if isinstance(key, str) and key in names:
            found: Mapping[str, str] = known["plans"][names[key]]
            return found
    of = f"architectures {shown(named)} and " if named else ""
    raise PlanError(f"no plan is known for {of}model_type {shown(kind)}: pass one with plan= (--plan FILE)")


def engine_plan(config: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return how vLLM cuts the modules of a model, by globs of their names."""
    known = table("vllm.toml")
    parts = known["models"][prove_known(config)]
    return {glob: rule for part in parts for glob, rule in known["modules"][part].items()}


def prove_known(config: Mapping[str, Any], names: Collection[str] = ()) -> str:
    """Return the architecture of a model that the layout ``vllm`` knows.

    Examples:
        >>> prove_known({"architectures": ["LlamaForCausalLM"]})
        'LlamaForCausalLM'
    """
    named = config.get("architectures")
    found = named[0] if isinstance(named, list) and len(named) == 1 else None
    known = table("vllm.toml")
    if not isinstance(found, str) or found not in known["models"]:
        raise PlanError(
            f"layout vllm does not know architectures {shown(named)}: it knows {', '.join(known['models'])}, "
            f"as vLLM {known['release']} loads them; write the layout hf instead (--layout hf)"
        )
    if "quantization_config" in config:
        raise PlanError(
            "vLLM changes quantised weights as it loads them: layout vllm does not support them; "
            "write the layout hf instead (--layout hf)"
        )
    tied = bool(config.get("tie_word_embeddings", False))
    if "model.embed_tokens.weight" in names and tied == ("lm_head.weight" in names):
        raise PlanError(
            f"config.json says tie_word_embeddings = {str(tied).lower()}, and the checkpoint has "
            f"{'a' if tied else 'no'} lm_head.weight: vLLM would not load these ranks"
        )
    return found


def known_fusions(config: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the rules of ``refit`` for a model's fused tensors.

    Examples:
        >>> falcon = {"model_type": "falcon", "new_decoder_architecture": False, "multi_query": True}
        >>> known_fusions(falcon)[0]["sections"]
        ['num_attention_heads * head_dim', 'head_dim', 'head_dim']
    """
    kind = config.get("model_type")
    models = table("fusions.toml")["model"]
    for model in models:
        if kind in model["types"] and all(config.get(k) == v for k, v in model.get("when", {}).items()):
            rules: Sequence[Mapping[str, Any]] = model["rule"]
            if "quantization_config" in config:
                _prove_by_rows(config["quantization_config"], rules)
            return rules
    known = sorted({each for model in models for each in model["types"]})
    raise PlanError(
        f"no fused tensors are known for model_type {shown(kind)} with this configuration; the types are "
        f"{', '.join(known)}: write a plan (--plan FILE)"
    )


def _prove_by_rows(stated: Any, rules: Sequence[Mapping[str, Any]]) -> None:
    """Reject quantised weights unless all tensors of their modules have the outputs first, and a rule."""
    method = stated.get("quant_method") if isinstance(stated, Mapping) else None
    unpacked = ("float-quantized", "int-quantized", "naive-quantized")
    known = method in ("modelopt", "nvfp4") or (
        method == "compressed-tensors" and stated.get("format") in unpacked
    )
    if not known or not all("{leaf}" in rule["fused"] for rule in rules):
        raise PlanError(
            f"how scales of quant_method {shown(method)} are cut is not known: write a plan (--plan FILE)"
        )
