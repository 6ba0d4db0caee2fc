"""The plan ``"auto"``: sharding rules derived from a model's configuration and tensor names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from splitops.errors import PlanError, brief, shown
from splitops.files.tensors import StoredTensor
from splitops.sharding.expressions import Names
from splitops.sharding.globs import Globs, match_glob
from splitops.sharding.heads import KEYS
from splitops.sharding.plan_language import assign_rules, make_axis_sharding, read_shard_rules
from splitops.sharding.quantised import RuleDocument, iter_module_rules
from splitops.sharding.tables import find_declared_plan, find_engine_plan, find_fusions, read_table

_FUSED: Final = re.compile(
    r"(^|[._])(g?qkvz?|Wqkv|W_pack|c_attn|in_proj_ba|gate_(and_)?up|up_gate|w13)([._]|$)"
)
"""Pattern of the names of fused tensors with consecutive sections. Programs may shard each section."""


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
    rules: list[RuleDocument] = []
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


def make_rank_plan(
    config: Mapping[str, Any], tensors: Sequence[StoredTensor], ranks: int, writer: str
) -> Mapping[str, Any]:
    """Return the plan document by which a program has sharded a model over ranks.

    Args:
        config: the configuration of the model.
        tensors: the part of each tensor on the first rank that has one.
        ranks: number of ranks.
        writer: the program, which matters only if the names of tensors are not those of Megatron-LM or Meta.
            Unless it is ``"vllm"`` or ``"hf"``, or there is only one rank, the sections of each sharded fused
            tensor must be known.
    """
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    for known in read_table("foreign.toml")["plan"]:
        if rules := [*_iter_named_rules(shapes, known, ranks)]:
            return {"version": 1, "rule": [*rules, {"match": "*", "replicate": True}]}
    if not config:
        raise PlanError("no plan without config.json: copy it there, or write a plan (--plan FILE)")
    document = make_auto_plan(config, [*shapes], "vllm" if writer == "vllm" else "hf")
    if ranks == 1 or writer in ("vllm", "hf"):
        return document
    fused = _iter_fused_rules(config) if writer == "autotp" else ()
    document = {**document, "rule": [*fused, *document["rule"]]}
    own = [tensor for tensor in tensors if _FUSED.search(tensor.name)]
    names = Names({}, config)
    for tensor, rule in zip(own, assign_rules(read_shard_rules(document), own)[1], strict=True):
        found = make_axis_sharding(rule, tensor.shape, names)
        if found is not None and found.sections is None:  # transformers shards fused tensors as one
            raise PlanError(
                f"{tensor.label} is fused: {brief(tensor.shape)} on rank 0 may be a part of the tensor, or a "
                "part of each section. Write a plan (--plan FILE), with sections if it is the latter"
            )
    return document


def _iter_named_rules(
    shapes: Mapping[str, Sequence[int]], known: Mapping[str, Any], ranks: int
) -> Iterator[RuleDocument]:
    """Yield the rules of a program in ``foreign.toml``, or none if no two matrices have its names.

    These are the names of ``up`` and ``down`` in a layer. If gate and up projections are fused, a matrix
    ``up`` has twice as many rows as the inner size.
    """
    up, down = f".{known['up'].split('.')[-2]}.", f".{known['down']}."
    readers = {
        name: name.replace(up, down)
        for name, shape in shapes.items()
        if len(shape) == 2 and match_glob(known["up"], name) is not None
    }
    inner = {name: shapes[reader][1] for name, reader in readers.items() if len(shapes.get(reader, ())) == 2}
    if not inner:
        return
    name, size = next(iter(inner.items()))
    times = 2 if shapes[name][0] == 2 * size else 1
    wrong = next((name for name, size in inner.items() if shapes[name][0] != times * size), None)
    if wrong is not None:
        raise PlanError(
            f"{shown(wrong)} of rank 0 has {shapes[wrong][0]} rows, not {times} x {inner[wrong]} as the "
            f"columns of {shown(readers[wrong])} require: write a plan (--plan FILE) if this is right"
        )
    if known["groups"]:
        yield {"match": known["groups"], "axis": 0, "groups": KEYS}
    globs = [known["up"], known["up"].replace(".weight", ".bias")]
    if times == 2:
        yield {"match": known["up"], "hf": "packed_colwise"}
        for size in {*inner.values()}:
            named = [name.replace(".weight", ".bias") for name in inner if inner[name] == size]
            if match := [name for name in named if name in shapes]:
                yield {"match": match, "axis": 0, "sections": [size * ranks] * 2}
    yield {"match": [*(globs if times == 1 else ()), *known["columns"]], "axis": 0}
    yield {"match": known["rows"], "axis": 1}


def _iter_fused_rules(config: Mapping[str, Any]) -> Iterator[RuleDocument]:
    """Yield the rules by which DeepSpeed's AutoTP shards each section of the fused tensors of a model."""
    with contextlib.suppress(PlanError):  # no fused tensors of this model are known
        for rule in find_fusions(config):
            if "sections" in rule and "groups" not in rule:
                match = [rule["fused"].replace("{leaf}", leaf) for leaf in ("weight", "bias")]
                yield {"match": match, "axis": 0, "sections": rule["sections"], "unit": "head_dim"}
            elif rule.keys() == {"fused", "parts"}:
                yield {"match": rule["fused"].replace("{leaf}", "weight"), "hf": "packed_colwise"}
