"""The models that the layout ``vllm`` knows, and how vLLM cuts them: ``tables/vllm.toml``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from splitops.errors import PlanError, shown
from splitops.sharding.tables import table


def engine_plan(config: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return how vLLM cuts the modules of a model, by globs of their names.

    Raises:
        PlanError: as :func:`prove_known`.
    """
    known = table("vllm.toml")
    parts = known["models"][prove_known(config)]
    return {glob: rule for part in parts for glob, rule in known["modules"][part].items()}


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
