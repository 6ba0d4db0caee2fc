"""The plan ``"auto"``: what a model's configuration declares, for the layout and the quantisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from splitops.errors import PlanError, shown
from splitops.sharding.globs import Globs
from splitops.sharding.quantised import rules_of_module
from splitops.sharding.tables import declared_plan, engine_plan


def auto_plan(config: Mapping[str, Any], names: Sequence[str], layout: str = "hf") -> Mapping[str, Any]:
    """Return the plan for a model.

    Examples:
        >>> for rule in auto_plan({"model_type": "llama"}, ["model.norm.weight", "lm_head.weight"])["rule"]:
        ...     print(rule)
        {'match': ['lm_head.weight', 'lm_head.bias'], 'hf': 'colwise_gather_output'}
        {'match': '*', 'replicate': True}
    """
    known = engine_plan(config) if layout == "vllm" else declared_plan(config)
    declared = dict[str, str | Mapping[str, Any]](known)
    globs = Globs(f"{glob}.*" if layout == "vllm" else glob for glob in declared)
    taken: list[list[str]] = [[] for _ in declared]
    for name in names:
        if (found := globs.find(name)) is not None:
            taken[found[0]].append(name)
    rules: list[Mapping[str, Any]] = []
    for (glob, said), some in zip(declared.items(), taken, strict=True):
        module = glob.removesuffix(".*")
        if not some:
            continue
        if not isinstance(said, str):
            rules.append({"match": [f"{module}.weight", f"{module}.bias"], **said})
        elif module == glob:
            rules.append({"match": glob, "hf": said})
        else:
            rules += rules_of_module(module, said, some, config)
    if not rules:
        raise PlanError(
            f"no tensor has a name that the plan of this model knows, such as {shown(next(iter(declared)))}: "
            "write a plan with plan= (--plan FILE)"
        )
    rules.append({"match": "*", "replicate": True})
    return {"version": 1, "layout": layout, "rule": rules}
