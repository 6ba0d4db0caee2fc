"""The ``config.json`` of padded ranks, whose sizes include the padding."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from splitops.errors import shown
from splitops.files.tensors import StoredTensor
from splitops.sharding.heads import KEYS, QUERIES, find_heads
from splitops.sharding.plan_language import Matches, TensorKind
from splitops.sharding.tensor_sharding import TensorSharding

_NAMES: Final = {
    "vocabulary": re.compile(
        r"embed|lm_head|vocab|wte|predictions|logits|(^|\.)(output|shared)\.(weight|bias)$"
    ),
    "inner": re.compile(r"mlp|ffn|feed_forward|expert|intermediate|(^|[._])(up|down|gate|fc\d?|w[123])[._]"),
}
"""Names of the tensors with an axis of each category of sizes."""
_KEYS: Final = {
    "vocabulary": re.compile(r"vocab|num_embeddings"),
    "inner": re.compile(r"intermediate|ffn|inner|d_ff|mlp|feed_forward|expert_(dim|size|hidden)"),
    "experts": re.compile(r"^(moe_)?(num|n)_((?!shared)\w+_)?experts$"),
}
"""Keys of configurations for each category of sizes."""

_ROUTER: Final = re.compile(r"router|(^|\.)gate\.(weight|bias|e_score_correction_bias)$")
"""Names of the tensors that route to experts, with one entry per expert along axis 0."""

_Place = tuple[str, ...]
"""The path of a size in a configuration: one key, or ``text_config`` and a key in it."""


@dataclass(frozen=True)
class PaddedConfig:
    """The configuration of ranks.

    Attributes:
        text: new content of ``config.json``, or None if it does not change.
        warnings: a sentence for each size that changes, or that cannot be changed.
    """

    text: bytes | None = None
    warnings: tuple[str, ...] = ()


def make_padded_config(
    matches: Matches, cuts: Sequence[TensorSharding], config: Mapping[str, Any], layout: str
) -> PaddedConfig:
    """Return the configuration of ranks with padded sizes.

    The layout ``dcp`` has no padding, and vLLM pads the vocabulary itself.
    """
    if not config or layout == "dcp":
        return PaddedConfig()
    sizes = dict(_iter_sizes(config))
    wanted: dict[_Place, dict[int, TensorKind]] = {}
    lost: list[TensorKind] = []
    for kind, cut in zip(matches.kinds, cuts, strict=True):
        axis_sharding = kind.axis_sharding
        if axis_sharding is None or not cut.padded:
            continue
        counts = _classify_axis(kind.tensor, axis_sharding.axis)
        if layout == "vllm" and counts == "vocabulary":
            continue
        size, padded = (
            kind.tensor.shape[axis_sharding.axis] * axis_sharding.pack,
            cut.padded * axis_sharding.pack,
        )
        found = list(_iter_changes(counts, size, padded, sizes))
        for place, new in found:
            wanted.setdefault(place, {}).setdefault(new, kind)
        if not found:
            lost.append(kind)
    document = json.loads(json.dumps(config))
    warnings, changed = [], False
    for place, values in wanted.items():
        [(new, kind), *others] = values.items()
        key, old = ".".join(place), sizes[place]
        other = others[0][1] if others else _find_unpadded(matches, cuts, kind)
        if other is not None:
            grown, name = shown(kind.tensor.name), shown(other.tensor.name)
            unlike = f"{name} to another size" if others else f"{name} is not padded"
            warnings.append(
                f"config.json of the ranks keeps {key} = {old}: {grown} is padded to {new}, but {unlike}"
            )
            continue
        part = document
        for each in place[:-1]:
            part = part[each]
        _set(part, place[-1], new)
        changed = True
        warnings.append(
            f"config.json of the ranks has {key} = {new}, not {old}, as {shown(kind.tensor.name)} is padded"
        )
    warnings += _warn_of_groups(sizes, dict(_iter_sizes(document)))
    for kind in lost:
        axis = kind.axis_sharding.axis if kind.axis_sharding is not None else 0
        warnings.append(
            f"config.json has no size for axis {axis} of {shown(kind.tensor.name)}, which {kind.rule.label} "
            "pads: set it when you load the ranks"
        )
    text = f"{json.dumps(document, indent=2, ensure_ascii=False)}\n".encode() if changed else None
    return PaddedConfig(text, tuple(dict.fromkeys(warnings)))


def _iter_sizes(config: Mapping[str, Any]) -> Iterator[tuple[_Place, int]]:
    """Yield the paths and sizes in a configuration and its ``text_config``, with default key heads."""
    inner = config.get("text_config")
    for place, part in (((), config), (("text_config",), inner if isinstance(inner, Mapping) else {})):
        for key, value in part.items():
            if type(value) is int and value > 0:
                yield (*place, key), value
        heads = part.get(QUERIES)
        if type(heads) is int and heads > 0 and part.get(KEYS) is None:
            yield (*place, KEYS), heads


def _classify_axis(tensor: StoredTensor, axis: int) -> str:
    """Return the category of an axis, or the key of its number of heads; "" if the name shows neither."""
    name, rank = tensor.name, len(tensor.shape)
    if axis == 0 and (("expert" in name and rank > 2) or _ROUTER.search(name)):
        return "experts"
    named = next((what for what, names in _NAMES.items() if names.search(name)), "")
    return find_heads(name, rank, axis) or named


def _iter_changes(
    counts: str, size: int, padded: int, sizes: Mapping[_Place, int]
) -> Iterator[tuple[_Place, int]]:
    """Yield the path of each size in a configuration that padding changes, and its new value."""
    if counts in (QUERIES, KEYS):
        for place, heads in sizes.items():
            own = size // heads
            if place[-1] == counts and size % heads == 0 and padded % own == 0:
                yield place, padded // own
        return
    keys = [_KEYS[counts]] if counts else list(_KEYS.values())
    found = [(p, old) for p, old in sizes.items() if any(key.search(p[-1]) for key in keys)]
    same = [place for place, old in found if old == size]
    if same:
        yield from ((place, padded) for place in (same if counts or len(same) == 1 else ()))
    elif counts == "inner" and padded % 2 == 0:  # gate and up projections fused along one axis
        yield from ((place, padded // 2) for place, old in found if 2 * old == size)


def _find_unpadded(matches: Matches, cuts: Sequence[TensorSharding], kind: TensorKind) -> TensorKind | None:
    """Return a kind with an unpadded axis of the same category and size as the padded axis of ``kind``."""
    axis_sharding = kind.axis_sharding
    assert axis_sharding is not None  # padded kinds have one
    counts, size = (
        _classify_axis(kind.tensor, axis_sharding.axis),
        kind.tensor.shape[axis_sharding.axis] * axis_sharding.pack,
    )
    for other, cut in zip(matches.kinds, cuts, strict=True):
        tensor, own = other.tensor, other.axis_sharding
        pack, axes = (1, range(len(tensor.shape))) if own is None else (own.pack, (own.axis,))
        same = (axis for axis in axes if tensor.shape[axis] * pack == size)
        if counts and not cut.padded and any(_classify_axis(tensor, axis) == counts for axis in same):
            return other
    return None


def _set(part: dict[str, Any], key: str, value: int) -> None:
    """Set a size. Omitted sizes whose defaults depend on it are set to their former values."""
    heads, hidden = part.get(QUERIES), part.get("hidden_size")
    if key == QUERIES:
        known = {KEYS: heads}
        if type(hidden) is int and type(heads) is int:
            known["head_dim"] = hidden // heads
        part |= {other: size for other, size in known.items() if part.get(other) is None}
    part[key] = value


def _warn_of_groups(before: Mapping[_Place, int], after: Mapping[_Place, int]) -> Iterator[str]:
    """Yield a warning if padding changes which key heads the query heads use."""
    for place, keys in before.items():
        if place[-1] != KEYS or (queries := before.get((*place[:-1], QUERIES))) is None:
            continue
        all_queries, all_keys = after[*place[:-1], QUERIES], after[place]
        if keys == all_keys == 1 or queries * all_keys == all_queries * keys:
            continue
        yield (
            f"config.json of the ranks has {all_queries} query heads over {all_keys} key heads, not "
            f"{queries} over {keys}: queries would use other key heads. Pad both by the same factor"
        )
