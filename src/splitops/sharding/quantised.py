"""How quantisation stores a module's weight: which tensors there are, and how each is cut with the others.

Weights, zeros and scales are cut at the same elements, never inside of a packed word, a group or a block.
Nothing is guessed that a configuration leaves out. ``tables/quantised.toml`` has the kinds of storage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from splitops.errors import PlanError, shown
from splitops.sharding.tables import table

RuleDocument = Mapping[str, Any]
_Stated = Mapping[str, Any]
_Values = dict[str, Any]
_OUT: Final = frozenset({"colwise", "colwise_rep", "colwise_gather_output"})
_IN: Final = frozenset({"rowwise", "rowwise_rep", "rowwise_split_input"})
_METHODS: Final = ("awq", "gptq", "fp8", "mxfp4", "nvfp4", "modelopt", "compressed-tensors")
_SINGLE: Final = (
    *("weight_shape", "weight_scale_2", "weight_global_scale", "input_global_scale", "input_scale"),
    *("input_zero_point", "output_scale", "k_scale", "v_scale"),
)
"""Tensors of a module that are of all of its weight."""


def rules_of_module(
    module: str, word: str, names: Sequence[str], config: Mapping[str, Any]
) -> Iterator[RuleDocument]:
    """Yield the rules for the tensors of modules."""
    known = {"weight", "bias"}
    stated = config.get("quantization_config")
    if isinstance(stated, dict):
        method = stated.get("quant_method")
        if method not in _METHODS:
            raise PlanError(f"nothing is known of the tensors of quant_method {shown(method)}: write a plan")
        if word in _OUT or word in _IN:
            for rule in _rules(word in _OUT, *_stored(method, word in _OUT, stated, names), names):
                known |= {leaf.rpartition(".")[2] for leaf in rule["match"]}
                yield {
                    **rule,
                    "match": [leaf if "." in leaf else f"{module}.{leaf}" for leaf in rule["match"]],
                }
    strange = next((name for name in names if name.rpartition(".")[2] not in known), None)
    if strange is not None:
        raise PlanError(
            f"tensor {shown(strange)} is not a weight, and how it is cut is not known: write a plan"
        )
    yield {"match": [f"{module}.weight", f"{module}.bias"], "hf": word}


def _rules(out: bool, kind: str, values: _Values, names: Sequence[str]) -> Iterator[RuleDocument]:
    """Yield the rules of a kind of storage, with the last names of tensors; none without a kind."""
    if not kind:
        return
    stored = table("quantised.toml")[kind]
    if "plain" in stored:
        own, ending = set(names), values.get(stored["plain"], stored["plain"]).removeprefix("weight")
        plain = [name for name in names if name.endswith(".weight") and f"{name}{ending}" not in own]
        if plain:
            yield {"match": plain, "hf": "colwise" if out else "rowwise"}
    for said in stored["out" if out else "in"]:
        rule = {key: values[value] if isinstance(value, str) else value for key, value in said.items()}
        yield {**rule, "match": [values.get(leaf, leaf) for leaf in said["match"]]}
    if whole := [*stored.get("whole", ()), *values.get("single", ())]:
        yield {"match": whole, "replicate": True}


def _number(stated: _Stated, key: str, *, least: int = 1) -> int:
    found = stated.get(key)
    if type(found) is not int or found < least or found > 1 << 31:
        raise PlanError(f"quantization_config declares {key} = {shown(found)}")
    return found


def _packing(stated: _Stated) -> _Values:
    """Return how many numbers are in a word of 32 bits, and how many share a scale: 0 for a whole column."""
    bits = _number(stated, "bits")
    if bits not in (2, 4, 8):
        raise PlanError(f"{bits} bits are not a whole part of a word of 32: write a plan")
    return {"pack": 32 // bits, "group": max(0, _number(stated, "group_size", least=-1))}


def _stored(method: Any, out: bool, stated: _Stated, names: Sequence[str]) -> tuple[str, _Values]:
    """Return the kind of storage of a method, and the values of the configuration; no kind as it is."""
    match method:
        case "awq":
            if str(stated.get("version", "gemm")).lower() != "gemm":
                raise PlanError(
                    f"nothing is known of version {shown(stated['version'])} of AWQ: write a plan"
                )
            values = _packing(stated)
            return "awq" if values["group"] else "awq by column", values
        case "gptq":
            values = _packing(stated)
            return "gptq in any order" if stated.get("desc_act") or not values["group"] else "gptq", values
        case "fp8" if stated.get("weight_block_size") is None:
            return "tensor", {}
        case "fp8":
            return "blocks", {"scales": "weight_scale_inv", **_block(stated, "weight_block_size")}
        case "mxfp4":  # only experts have blocks, of which each rank has whole ones
            return "", {}
        case "nvfp4" | "modelopt" if stated.get("quant_algo", "NVFP4") == "NVFP4":
            return "groups", {"weights": "weight", "pack": 2, "unit": 1, "group": 16, "single": _SINGLE}
        case "nvfp4" | "modelopt" if stated["quant_algo"] == "FP8":
            return "tensor", {"single": _SINGLE}
        case "nvfp4" | "modelopt":
            raise PlanError(f"nothing is known of quant_algo {shown(stated['quant_algo'])}: write a plan")
    return _compressed(out, stated, names)


def _block(stated: _Stated, key: str) -> _Values:
    """Return the sizes of a block."""
    block = stated.get(key)
    if not (isinstance(block, list) and len(block) == 2 and all(type(n) is int and n > 0 for n in block)):
        raise PlanError(f"quantization_config declares {key} = {shown(block)}")
    return {"rows": block[0], "columns": block[1]}


def _compressed(out: bool, stated: _Stated, names: Sequence[str]) -> tuple[str, _Values]:
    """Weights of compressed-tensors: packed words or numbers, with scales of rows, groups or blocks."""
    weights = _scheme(stated)
    packed = any(name.endswith(".weight_packed") for name in names)
    form, strategy = str(stated.get("format")), weights.get("strategy")
    values: _Values = {"weights": "weight_packed" if packed else "weight", "single": _SINGLE}
    if form in ("nvfp4-pack-quantized", "mxfp4-pack-quantized"):
        group = 16 if form.startswith("nv") else 32
        return "groups", {**values, "weights": "weight_packed", "pack": 2, "unit": 1, "group": group}
    if form not in ("pack-quantized", "float-quantized", "int-quantized", "naive-quantized"):
        raise PlanError(f"nothing is known of format {shown(form)} of compressed-tensors: write a plan")
    pack = _packing({"bits": weights.get("num_bits"), "group_size": -1})["pack"] if packed else 1
    if strategy == "block":
        return "blocks", {**values, "scales": "weight_scale", **_block(weights, "block_structure")}
    if strategy not in ("tensor", "channel", "group"):
        raise PlanError(f"nothing is known of strategy {shown(strategy)} of compressed-tensors: write a plan")
    values |= {"pack": pack, "unit": pack if any(n.endswith(".weight_zero_point") for n in names) else 1}
    every = strategy == "tensor" or (strategy == "channel" and not out)  # each rank needs all scales
    every |= not out and any(name.endswith(".weight_g_idx") for name in names)  # the rows of any group
    if every or out:
        return "groups in any order" if every else "groups", values
    return "groups", {**values, "group": _number(weights, "group_size")}


def _scheme(stated: _Stated) -> _Stated:
    """Return how all weights are quantised, which must be one way."""
    groups = stated.get("config_groups")
    found = [each.get("weights") for each in groups.values()] if isinstance(groups, dict) else []
    if not found or not isinstance(found[0], dict) or any(each != found[0] for each in found):
        raise PlanError(f"config_groups declare {len(found)} ways to quantise weights, not one: write a plan")
    return found[0]
