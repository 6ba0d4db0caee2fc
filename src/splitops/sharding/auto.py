"""The plan ``"auto"``: what a model's configuration declares, told for the layout and the quantisation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from splitops.errors import PlanError, shown
from splitops.sharding.globs import matched
from splitops.sharding.quantised import rules_of_module
from splitops.sharding.tables import declared_plan

_HEADS: Final = {"unit": "head_dim", "even": True}
_ENGINE: Final[Mapping[str, Mapping[str, Any]]] = {
    "q_proj": {"hf": "colwise", **_HEADS},
    "k_proj": {"hf": "colwise", "replicate": True, **_HEADS},
    "v_proj": {"hf": "colwise", "replicate": True, **_HEADS},
    "qkv_proj": {
        "axis": 0,
        "sections": [
            "num_attention_heads * head_dim",
            "num_key_value_heads * head_dim",
            "num_key_value_heads * head_dim",
        ],
        "replicate": [1, 2],
        **_HEADS,
    },
    "gate_up_proj": {"axis": 0, "sections": ["intermediate_size", "intermediate_size"], "even": True},
    "embed_tokens": {"axis": 0, "pad_to": 64, "even": True},
    "lm_head": {"axis": 0, "pad_to": 64, "even": True},
    **{name: {"hf": "colwise", "even": True} for name in ("gate_proj", "up_proj", "w1", "w3")},
    **{name: {"hf": "rowwise", "even": True} for name in ("o_proj", "down_proj", "w2")},
}
"""How serving engines cut the modules that they know by these names."""


def auto_plan(config: Mapping[str, Any], names: Sequence[str], layout: str = "hf") -> Mapping[str, Any]:
    """Return the plan for a model.

    Args:
        config: its ``config.json``.
        names: of its tensors.
        layout: whom the plan is for: the words of transformers mean other cuts to serving engines.

    Raises:
        PlanError: no plan is known for its kind or its quantisation.

    Examples:
        >>> for rule in auto_plan({"model_type": "llama"}, ["model.norm.weight", "lm_head.weight"])["rule"]:
        ...     print(rule)
        {'match': ['lm_head.weight', 'lm_head.bias'], 'hf': 'colwise_gather_output'}
        {'match': '*', 'replicate': True}
    """
    rules: list[Mapping[str, Any]] = []
    taken: set[str] = set()
    for glob, word in declared_plan(config).items():
        found = [name for name in names if name not in taken and matched(glob, name) is not None]
        taken |= set(found)
        if found:
            rules += _rules(glob, word, found, config, layout)
    rules.append({"match": "*", "replicate": True})
    return {"version": 1, "layout": layout, "rule": rules}


def _rules(
    glob: str, word: str, names: Sequence[str], config: Mapping[str, Any], layout: str
) -> Iterator[Mapping[str, Any]]:
    module = glob.removesuffix(".*")
    if layout == "vllm":
        yield _engine_rule(module, config)
    elif module == glob:
        yield {"match": glob, "hf": word}
    else:
        yield from rules_of_module(module, word, names, config)


def _engine_rule(module: str, config: Mapping[str, Any]) -> Mapping[str, Any]:
    if "quantization_config" in config:
        raise PlanError("engines restate quantised weights as they load them: layout vllm takes none")
    leaf = module.rpartition(".")[2]
    if leaf not in _ENGINE:
        raise PlanError(f"layout vllm has no plan for {shown(module)}: state one with plan= (--plan FILE)")
    return {"match": [f"{module}.weight", f"{module}.bias"], **_ENGINE[leaf]}
