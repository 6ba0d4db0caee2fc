"""How quantisation stores a module's weight: which tensors there are, and how each is cut with the others.

Weights, zeros and scales are cut at the same elements, never inside of a packed word, a group or a block.
Nothing is guessed that a configuration leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from splitops.errors import PlanError, shown

RuleDocument = Mapping[str, Any]
_WHOLE: Final = {"replicate": True}
_OUT: Final = frozenset({"colwise", "colwise_rep", "colwise_gather_output"})
_IN: Final = frozenset({"rowwise", "rowwise_rep", "rowwise_split_input"})


def rules_of_module(
    module: str, word: str, names: Sequence[str], config: Mapping[str, Any]
) -> Iterator[RuleDocument]:
    """Yield the rules for the tensors of modules.

    Args:
        module: a glob.
        word: how transformers cuts the modules' weights.
        names: of all tensors of these modules.
        config: the model's ``config.json``.

    Raises:
        PlanError: the quantisation, or a tensor of it, is not known.
    """
    known = {"weight", "bias"}
    stated = config.get("quantization_config")
    if isinstance(stated, dict):
        method = stated.get("quant_method")
        if not isinstance(method, str) or method not in _METHODS:
            raise PlanError(f"nothing is known of the tensors of quant_method {shown(method)}: write a plan")
        if word in _OUT or word in _IN:
            made = list(_METHODS[method](word in _OUT, stated, names, module))
            for rule in made:
                matches = [rule["match"]] if isinstance(rule["match"], str) else rule["match"]
                known |= {match.rpartition(".")[2] for match in matches}
            yield from made
    strange = next((name for name in names if name.rpartition(".")[2] not in known), None)
    if strange is not None:
        raise PlanError(
            f"tensor {shown(strange)} is not a weight, and how it is cut is not known: write a plan"
        )
    yield {"match": [f"{module}.weight", f"{module}.bias"], "hf": word}


def _number(stated: Mapping[str, Any], key: str, *, least: int = 1) -> int:
    found = stated.get(key)
    if type(found) is not int or found < least or found > 1 << 31:
        raise PlanError(f"quantization_config declares {key} = {shown(found)}")
    return found


def _packing(stated: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many numbers are in a word of 32 bits, and how many share a scale: 0 for a whole column."""
    bits = _number(stated, "bits")
    if bits not in (2, 4, 8):
        raise PlanError(f"{bits} bits are not a whole part of a word of 32: write a plan")
    group = _number(stated, "group_size", least=-1)
    return 32 // bits, max(0, group)


def _awq(out: bool, stated: Mapping[str, Any], names: Sequence[str], module: str) -> Iterator[RuleDocument]:
    """Weights (in, out / pack), zeros (in / group, out / pack), scales (in / group, out)."""
    if str(stated.get("version", "gemm")).lower() != "gemm":
        raise PlanError(f"nothing is known of version {shown(stated['version'])} of AWQ: write a plan")
    pack, group = _packing(stated)
    weight, zeros, scales = (f"{module}.{leaf}" for leaf in ("qweight", "qzeros", "scales"))
    if out:
        yield {"match": [weight, zeros], "axis": 1, "pack": pack}
        yield {"match": scales, "axis": 1, "unit": pack}
    else:
        yield {"match": weight, "axis": 0, "group_size": group or 1}
        yield {"match": [zeros, scales], **({"axis": 0, "pack": group} if group else _WHOLE)}


def _gptq(out: bool, stated: Mapping[str, Any], names: Sequence[str], module: str) -> Iterator[RuleDocument]:
    """Weights (in / pack, out), zeros (in / group, out / pack), scales (in / group, out), groups (in)."""
    pack, group = _packing(stated)
    weight, zeros, scales, groups = (f"{module}.{leaf}" for leaf in ("qweight", "qzeros", "scales", "g_idx"))
    if out:
        yield {"match": [weight, scales], "axis": 1, "unit": pack}
        yield {"match": zeros, "axis": 1, "pack": pack}
        yield {"match": groups, **_WHOLE}
    elif stated.get("desc_act") or not group:  # rows of any group are anywhere: each rank needs all scales
        yield {"match": weight, "axis": 0, "pack": pack}
        yield {"match": [zeros, scales], **_WHOLE}
        yield {"match": groups, "axis": 0, "unit": pack}
    else:
        yield {"match": weight, "axis": 0, "pack": pack, "group_size": group}
        yield {"match": [zeros, scales], "axis": 0, "pack": group}
        yield {"match": groups, "axis": 0, "group_size": group, "unit": pack}


def _fp8(out: bool, stated: Mapping[str, Any], names: Sequence[str], module: str) -> Iterator[RuleDocument]:
    """Weights (out, in), scales of their blocks; without blocks, one scale of the whole weight."""
    scales = [
        f"{module}.{leaf}" for leaf in ("weight_scale_inv", "weight_scale", "input_scale", "activation_scale")
    ]
    if stated.get("weight_block_size") is None:
        yield {"match": scales, **_WHOLE}
        return
    yield from _blocks(out, stated, "weight_block_size", names, module, "_scale_inv")
    yield {"match": scales[2:], **_WHOLE}


def _blocks(
    out: bool, stated: Mapping[str, Any], key: str, names: Sequence[str], module: str, scale: str
) -> Iterator[RuleDocument]:
    """Weights (out, in), scales of their blocks; the sizes of a block are declared by a key."""
    block = stated.get(key)
    if not (isinstance(block, list) and len(block) == 2 and all(type(n) is int and n > 0 for n in block)):
        raise PlanError(f"quantization_config declares {key} = {shown(block)}")
    yield from _plain(out, names, scale)
    axis, unit = (-2, block[0]) if out else (-1, block[1])
    yield {"match": f"{module}.weight", "axis": axis, "unit": unit}
    yield {"match": f"{module}.weight{scale}", "axis": axis, "pack": unit}


def _plain(out: bool, names: Sequence[str], scale: str) -> Iterator[RuleDocument]:
    """Yield the rule of the weights that have no scale, as they were not converted."""
    own = set(names)
    plain = [name for name in names if name.endswith(".weight") and f"{name}{scale}" not in own]
    if plain:
        yield {"match": plain, "hf": "colwise" if out else "rowwise"}


_SINGLE: Final = (
    *("weight_shape", "weight_scale_2", "weight_global_scale", "input_global_scale", "input_scale"),
    *("input_zero_point", "output_scale", "k_scale", "v_scale"),
)
"""Tensors of a module that are of all of its weight."""


def _grouped(
    out: bool, module: str, weight: str, scales: Sequence[str], pack: int, group: int
) -> Iterator[RuleDocument]:
    """Weights (out, in / pack), scales (out, in / group)."""
    beside = [f"{module}.{leaf}" for leaf in scales]
    if out:
        yield {"match": [f"{module}.{weight}", *beside], "axis": 0}
    else:
        yield {"match": f"{module}.{weight}", "axis": 1, "pack": pack, "group_size": group}
        yield {"match": beside, "axis": 1, "pack": group}
    yield {"match": [f"{module}.{leaf}" for leaf in _SINGLE], **_WHOLE}


def _fp4(out: bool, stated: Mapping[str, Any], names: Sequence[str], module: str) -> Iterator[RuleDocument]:
    """NVFP4 as transformers and ModelOpt write it: two numbers in a byte, a scale for each 16."""
    if stated.get("quant_algo", "NVFP4") != "NVFP4":
        raise PlanError(f"nothing is known of quant_algo {shown(stated['quant_algo'])}: write a plan")
    yield from _plain(out, names, "_scale")
    yield from _grouped(out, module, "weight", ("weight_scale",), 2, 16)


def _compressed(
    out: bool, stated: Mapping[str, Any], names: Sequence[str], module: str
) -> Iterator[RuleDocument]:
    """Weights of compressed-tensors: packed words or numbers, with scales of rows, groups or blocks."""
    weights = _scheme(stated)
    packed = any(name.endswith(".weight_packed") for name in names)
    form, strategy = str(stated.get("format")), weights.get("strategy")
    scales = ["weight_scale"]
    if form in ("nvfp4-pack-quantized", "mxfp4-pack-quantized"):
        yield from _grouped(out, module, "weight_packed", scales, 2, 16 if form.startswith("nv") else 32)
        return
    if form not in ("pack-quantized", "float-quantized", "int-quantized", "naive-quantized"):
        raise PlanError(f"nothing is known of format {shown(form)} of compressed-tensors: write a plan")
    pack = _packing({"bits": weights.get("num_bits"), "group_size": -1})[0] if packed else 1
    zeros, index = f"{module}.weight_zero_point", f"{module}.weight_g_idx"
    if strategy == "block":
        yield from _blocks(out, weights, "block_structure", names, module, "_scale")
        yield {"match": [f"{module}.{leaf}" for leaf in _SINGLE], **_WHOLE}
        return
    if not packed:
        yield from _plain(out, names, "_scale")
    leaf = "weight_packed" if packed else "weight"
    if strategy not in ("tensor", "channel", "group"):
        raise PlanError(f"nothing is known of strategy {shown(strategy)} of compressed-tensors: write a plan")
    every = strategy == "tensor" or (strategy == "channel" and not out)  # each rank needs all scales
    every |= not out and any(name.endswith(".weight_g_idx") for name in names)  # the rows of any group
    rows = [f"{module}.weight_scale", *([] if packed else [zeros])]
    if out:
        unit = pack if any(name.endswith(".weight_zero_point") for name in names) else 1
        yield {"match": [f"{module}.{leaf}", *([] if every else rows)], "axis": 0, "unit": unit}
        yield {"match": [zeros], **(_WHOLE if every else {"axis": 0, "pack": pack})}
        yield {"match": index, **_WHOLE}
    elif every:
        yield {"match": f"{module}.{leaf}", "axis": 1, "pack": pack}
        yield {"match": index, "axis": 0, "unit": pack}
    else:
        yield from _grouped(
            out, module, leaf, ("weight_scale", "weight_zero_point"), pack, _number(weights, "group_size")
        )
    yield {"match": [*rows, zeros, *(f"{module}.{leaf}" for leaf in _SINGLE)], **_WHOLE}


def _scheme(stated: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return how all weights are quantised, which must be one way."""
    groups = stated.get("config_groups")
    found = [each.get("weights") for each in groups.values()] if isinstance(groups, dict) else []
    if not found or not isinstance(found[0], dict) or any(each != found[0] for each in found):
        raise PlanError(f"config_groups declare {len(found)} ways to quantise weights, not one: write a plan")
    return found[0]


def _mxfp4(out: bool, stated: Mapping[str, Any], names: Sequence[str], module: str) -> Iterator[RuleDocument]:
    """Only experts have blocks, of which each rank has whole ones; other modules are not quantised."""
    yield from ()


_METHODS: Final[
    Mapping[Any, Callable[[bool, Mapping[str, Any], Sequence[str], str], Iterator[RuleDocument]]]
] = {
    "awq": _awq,
    "gptq": _gptq,
    "fp8": _fp8,
    "mxfp4": _mxfp4,
    "nvfp4": _fp4,
    "modelopt": _fp4,
    "compressed-tensors": _compressed,
}
