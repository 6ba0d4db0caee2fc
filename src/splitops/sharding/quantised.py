"""How quantisation stores a module's weight: which tensors there are, and how each is cut with the others.

Weights, zeros and scales are cut at the same elements, never inside of a packed word, a group or a block.
What a configuration does not say is not guessed.
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
    block = stated.get("weight_block_size")
    if block is None:
        yield {"match": scales, **_WHOLE}
        return
    if not (isinstance(block, list) and len(block) == 2 and all(type(n) is int and n > 0 for n in block)):
        raise PlanError(f"quantization_config declares weight_block_size = {shown(block)}")
    own = set(names)
    plain = [name for name in names if name.endswith(".weight") and f"{name}_scale_inv" not in own]
    if plain:  # modules that were not converted
        yield {"match": plain, "hf": "colwise" if out else "rowwise"}
    axis, unit = (-2, block[0]) if out else (-1, block[1])
    yield {"match": f"{module}.weight", "axis": axis, "unit": unit}
    yield {"match": scales[0], "axis": axis, "pack": unit}
    yield {"match": scales[2:], **_WHOLE}


_METHODS: Final[
    Mapping[Any, Callable[[bool, Mapping[str, Any], Sequence[str], str], Iterator[RuleDocument]]]
] = {
    "awq": _awq,
    "gptq": _gptq,
    "fp8": _fp8,
}
