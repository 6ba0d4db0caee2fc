"""The plan ``"auto"``: sharding rules derived from the configuration of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from splitops.errors import PlanError, shown
from splitops.sharding.globs import Globs
from splitops.sharding.quantised import iter_module_rules
from splitops.sharding.tables import find_declared_plan, find_engine_plan


def make_auto_plan(config: Mapping[str, Any], names: Sequence[str], layout: str = "hf") -> Mapping[str, Any]:
    """Return the plan document for a model, given its ``config.json`` and the names of its tensors.

    Examples:
        >>> for rule in make_auto_plan({"model_type": "llama"}, ["lm_head.weight", "x"])["rule"]:
        ...     print(rule)
        {'match': ['lm_head.weight', 'lm_head.bias'], 'hf': 'colwise_gather_output'}
        {'match': '*', 'replicate': True}
    """
    known = find_engine_plan(config) if layout == "vllm" else find_declared_plan(config)
    declared = dict[str, str | Mapping[str, Any]](known)
    globs = Globs(f"{glob}.*" if layout == "vllm" else glob for glob in declared)
    matches: list[list[str]] = [[] for _ in declared]
    for name in names:
        if (found := globs.find(name)) is not None:
            matches[found[0]].append(name)
    rules: list[Mapping[str, Any]] = []
    for (glob, style), matching in zip(declared.items(), matches, strict=True):
        module = glob.removesuffix(".*")
        if not matching:
            continue
        if not isinstance(style, str):
            rules.append({"match": [f"{module}.weight", f"{module}.bias"], **style})
        elif module == glob:
            rules.append({"match": glob, "hf": style})
        else:
            rules += iter_module_rules(module, style, matching, config)
    if not rules:
        raise PlanError(
            f"no tensor matches the plan for this type of model, which has names such as "
            f"{shown(next(iter(declared)))}: write a plan with plan= (--plan FILE)"
        )
    rules.append({"match": "*", "replicate": True})
    return {"version": 1, "layout": layout, "rule": rules}
