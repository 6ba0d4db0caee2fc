"""Sharding rules for the tensors of quantised modules, by quantisation method.

Weights are never split inside of a packed word or a block, nor inside of a group unless every rank stores all
scales. Zero points and scales are sharded at the same elements as weights, or replicated. Omitted numbers of
bits and group sizes are never guessed. ``tables/quantised.toml`` has the kinds of storage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from splitops.errors import PlanError, shown
from splitops.sharding.tables import read_table

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
"""Names of the tensors that apply to a complete module, so that every rank needs them."""


def iter_module_rules(
    module: str, word: str, names: Sequence[str], config: Mapping[str, Any]
) -> Iterator[RuleDocument]:
    """Yield the rules for the tensors ``names`` of a module, whose tensor-parallel style is ``word``."""
    known = {"weight", "bias"}
    stated = config.get("quantization_config")
    if isinstance(stated, dict):
        method = stated.get("quant_method")
        if method not in _METHODS:
            raise PlanError(f"unsupported quant_method {shown(method)}: write a plan")
        if word in _OUT or word in _IN:
            for rule in _iter_rules(word in _OUT, *_find_storage(method, word in _OUT, stated, names), names):
                known |= {leaf.rpartition(".")[2] for leaf in rule["match"]}
                yield {
                    **rule,
                    "match": [leaf if "." in leaf else f"{module}.{leaf}" for leaf in rule["match"]],
                }
    strange = next((name for name in names if name.rpartition(".")[2] not in known), None)
    if strange is not None:
        raise PlanError(f"no sharding rule for tensor {shown(strange)}, which is not a weight: write a plan")
    yield {"match": [f"{module}.weight", f"{module}.bias"], "hf": word}


def _iter_rules(out: bool, kind: str, values: _Values, names: Sequence[str]) -> Iterator[RuleDocument]:
    """Yield the rules of a kind of storage for sharded outputs (``out``) or inputs. Fill in ``values``."""
    if not kind:
        return
    stored = read_table("quantised.toml")[kind]
    if "plain" in stored:
        own, ending = set(names), values.get(stored["plain"], stored["plain"]).removeprefix("weight")
        plain = [name for name in names if name.endswith(".weight") and f"{name}{ending}" not in own]
        if plain:
            yield {"match": plain, "hf": "colwise" if out else "rowwise"}
    for entry in stored["out" if out else "in"]:
        rule = {key: values[value] if isinstance(value, str) else value for key, value in entry.items()}
        yield {**rule, "match": [values.get(leaf, leaf) for leaf in entry["match"]]}
    if whole := [*stored.get("whole", ()), *values.get("single", ())]:
        yield {"match": whole, "replicate": True}


def _read_number(stated: _Stated, key: str, *, minimum: int = 1) -> int:
    found = stated.get(key)
    if type(found) is not int or found < minimum or found > 1 << 31:
        raise PlanError(f"quantization_config has the invalid {key} = {shown(found)}")
    return found


def _read_packing(stated: _Stated) -> _Values:
    """Return the numbers of elements per 32-bit word and per group (0 if a group is a complete column)."""
    bits = _read_number(stated, "bits")
    if bits not in (2, 4, 8):
        raise PlanError(f"unsupported bits = {bits}: write a plan")
    return {"pack": 32 // bits, "group": max(0, _read_number(stated, "group_size", minimum=-1))}


def _find_storage(method: Any, out: bool, stated: _Stated, names: Sequence[str]) -> tuple[str, _Values]:
    """Return how a quantisation method stores weights, and values to fill in.

    The first is the name of a set of rules ("" if none are needed). ``out`` is set if the outputs of the
    layer are sharded.
    """
    match method:
        case "awq":
            if str(stated.get("version", "gemm")).lower() != "gemm":
                raise PlanError(f"unsupported version {shown(stated['version'])} of AWQ: write a plan")
            values = _read_packing(stated)
            return "awq" if values["group"] else "awq by column", values
        case "gptq":
            values = _read_packing(stated)
            return "gptq in any order" if stated.get("desc_act") or not values["group"] else "gptq", values
        case "fp8" if stated.get("weight_block_size") is None:
            return "tensor", {}
        case "fp8":
            return "blocks", {"scales": "weight_scale_inv", **_read_block(stated, "weight_block_size")}
        case "mxfp4":  # only experts have blocks, and each rank gets complete experts
            return "", {}
        case "nvfp4" | "modelopt" if stated.get("quant_algo", "NVFP4") == "NVFP4":
            return "groups", {"weights": "weight", "pack": 2, "unit": 1, "group": 16, "single": _SINGLE}
        case "nvfp4" | "modelopt" if stated["quant_algo"] == "FP8":
            return "tensor", {"single": _SINGLE}
        case "nvfp4" | "modelopt":
            raise PlanError(f"unsupported quant_algo {shown(stated['quant_algo'])}: write a plan")
    return _find_compressed_storage(out, stated, names)


def _read_block(stated: _Stated, key: str) -> _Values:
    """Return the numbers of rows and columns in each block that shares a scale, from entry ``key``."""
    block = stated.get(key)
    if not (isinstance(block, list) and len(block) == 2 and all(type(n) is int and n > 0 for n in block)):
        raise PlanError(f"quantization_config has the invalid {key} = {shown(block)}")
    return {"rows": block[0], "columns": block[1]}


def _find_compressed_storage(out: bool, stated: _Stated, names: Sequence[str]) -> tuple[str, _Values]:
    """Return the result of :func:`_find_storage` for the method compressed-tensors."""
    weights = _get_scheme(stated)
    packed = any(name.endswith(".weight_packed") for name in names)
    form, strategy = str(stated.get("format")), weights.get("strategy")
    values: _Values = {"weights": "weight_packed" if packed else "weight", "single": _SINGLE}
    if form in ("nvfp4-pack-quantized", "mxfp4-pack-quantized"):
        group = 16 if form.startswith("nv") else 32
        return "groups", {**values, "weights": "weight_packed", "pack": 2, "unit": 1, "group": group}
    if form not in ("pack-quantized", "float-quantized", "int-quantized", "naive-quantized"):
        raise PlanError(f"unsupported format {shown(form)} of compressed-tensors: write a plan")
    pack = _read_packing({"bits": weights.get("num_bits"), "group_size": -1})["pack"] if packed else 1
    if strategy == "block":
        return "blocks", {**values, "scales": "weight_scale", **_read_block(weights, "block_structure")}
    if strategy not in ("tensor", "channel", "group"):
        raise PlanError(f"unsupported strategy {shown(strategy)} of compressed-tensors: write a plan")
    values |= {"pack": pack, "unit": pack if any(n.endswith(".weight_zero_point") for n in names) else 1}
    every = strategy == "tensor" or (strategy == "channel" and not out)  # each rank needs all scales
    every |= not out and any(name.endswith(".weight_g_idx") for name in names)  # a group may contain any rows
    if every or out:
        return "groups in any order" if every else "groups", values
    return "groups", {**values, "group": _read_number(weights, "group_size")}


def _get_scheme(stated: _Stated) -> _Stated:
    """Return the quantisation scheme of the weights. Raise PlanError unless there is exactly one."""
    groups = stated.get("config_groups")
    found = [each.get("weights") for each in groups.values()] if isinstance(groups, dict) else []
    if not found or not isinstance(found[0], dict) or any(each != found[0] for each in found):
        raise PlanError("config_groups must have exactly one scheme for weights: write a plan")
    return found[0]


def has_shared_offset(config: Mapping[str, Any]) -> bool:
    """Return whether weights have an offset and a single scale, so that zeros do not dequantise to zeros."""
    stated = config.get("quantization_config")
    if not isinstance(stated, dict) or stated.get("quant_method") != "compressed-tensors":
        return False
    weights = _get_scheme(stated)
    offset = stated.get("format") == "pack-quantized" or weights.get("symmetric") is False
    return offset and weights.get("strategy") == "tensor"


def find_group_size(config: Mapping[str, Any]) -> int:
    """Return the number of rows per group of a GPTQ model, or 0 without groups of consecutive rows."""
    stated = config.get("quantization_config")
    if not isinstance(stated, dict) or stated.get("quant_method") != "gptq" or stated.get("desc_act"):
        return 0
    size = stated.get("group_size")
    return size if type(size) is int and 0 < size < 1 << 31 else 0
