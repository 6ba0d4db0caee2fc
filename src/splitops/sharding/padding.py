"""Padding of intermediate and vocabulary sizes, and the ``config.json`` of padded ranks."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from splitops.errors import PlanError, shown
from splitops.files.tensors import StoredTensor, number_keys
from splitops.sharding.heads import KEYS, QUERIES, find_heads
from splitops.sharding.plan_language import Matches, TensorKind
from splitops.sharding.quantised import has_shared_offset
from splitops.sharding.tables import read_table
from splitops.sharding.tensor_sharding import AxisSharding, TensorSharding

_NAMES: Final = {
    "vocabulary": re.compile(
        r"embed|lm_head|vocab|wte|predictions|logits"
        r"|(^|\.)(output(_layer|_projection)?|shared)\.(weight|bias)$"
    ),
    "inner": re.compile(
        r"mlp|moe|ffn|feed_forward|expert|intermediate|(^|[._])(up|down|gate|fc\d?|w[123])[._]"
    ),
}
"""Patterns of the names of tensors with an axis of vocabulary or inner (intermediate) size."""
SIZE_KEYS: Final = {
    "vocabulary": re.compile(r"vocab|num_embeddings"),
    "inner": re.compile(r"intermediate|ffn|inner|d_ff|mlp|feed_forward|expert_(dim|size|hidden)"),
    "experts": re.compile(r"^(moe_)?(num|n)_((?!shared)\w+_)?experts$"),
}
"""Patterns of configuration keys, by category of sizes."""

_ROUTER: Final = re.compile(r"router|(^|\.)gate\.(weight|bias|e_score_correction_bias)$")
"""Pattern of the names of router tensors, which have one entry per expert along axis 0."""

_FUSED: Final = re.compile(r"gate_(and_)?up|up_gate|w1[23]|input_linear|fc1|h_to_4h|(^|[._])wi[._]")
"""Pattern of the names of tensors that may be gate and up projections, fused along one axis."""

_TOKENS: Final = re.compile(
    r"(^|[._])(embed_tokens|tok_embeddings|word_embeddings|embed_in|embed_out|wte|lm_head|output|shared)(\.|$)"
)
"""Pattern of the names of tensors with one row per token of the vocabulary."""

_VLLM_PADDING: Final = 64
"""vLLM itself pads the vocabulary to a multiple of this number."""


_Place = tuple[str, ...]
"""The path of a size in a configuration: one key, or ``text_config`` and a key in it."""


@dataclass(frozen=True)
class PaddedConfig:
    """The ``config.json`` of padded ranks.

    Attributes:
        text: new content of ``config.json``, or None if it does not change.
        warnings: sentences about sizes that change or cannot be changed, and about the consequences.
    """

    text: bytes | None = None
    warnings: tuple[str, ...] = ()


def iter_sizes(config: Mapping[str, Any]) -> Iterator[tuple[_Place, int]]:
    """Yield each size in a configuration and its ``text_config``, with its path.

    The number of key heads defaults to the number of query heads.
    """
    inner = config.get("text_config")
    for place, part in (((), config), (("text_config",), inner if isinstance(inner, Mapping) else {})):
        for key, value in part.items():
            if type(value) is int and 0 < value < 1 << 63:
                yield (*place, key), value
        heads = part.get(QUERIES)
        if type(heads) is int and 0 < heads < 1 << 63 and part.get(KEYS) is None:
            yield (*place, KEYS), heads


def find_sizes(config: Mapping[str, Any], key: str) -> set[int]:
    """Return the sizes that a configuration and its ``text_config`` set for a key."""
    return {size for place, size in iter_sizes(config) if place[-1] == key}


def classify_axis(tensor: StoredTensor, axis: int) -> str:
    """Return the category of an axis, the configuration key for its heads, or "" if neither is known."""
    name, rank = tensor.name, len(tensor.shape)
    routes = _ROUTER.search(name) is not None
    if routes or (axis == 0 and "expert" in name and rank > 2):
        return "experts" if axis == 0 else ""
    named = next((what for what, names in _NAMES.items() if names.search(name)), "")
    return find_heads(name, rank, axis) or named


def _count_sizes(name: str, counts: str, length: int, pack: int, size: int) -> int:
    """Return how many times an axis of category ``counts`` contains ``size``, or 0 if it does not fit.

    The axis has ``length`` indices of ``pack`` elements. The last one may be incomplete, as in the scales of
    blocks. A size may be repeated if gate and up projections are fused, or if shared experts form one layer.
    """
    times = length * pack // size
    limit = 1 if counts != "inner" else 2 if _FUSED.search(name) else length if "shared" in name else 1
    return times if times <= limit and -(-size * times // pack) == length else 0


def separate_sizes(matches: Matches, tensors: Sequence[StoredTensor]) -> Matches:
    """Return matches with finer kinds: :func:`classify_axis` returns the same for all tensors of a kind."""
    categories = [
        tuple([classify_axis(tensor, axis) for axis in range(len(tensor.shape))]) for tensor in tensors
    ]
    old = matches.numbers.tolist()
    numbers, firsts = number_keys(zip(old, categories, strict=True))
    kinds = tuple(replace(matches.kinds[old[index]], tensor=tensors[index]) for index in firsts)
    return replace(matches, numbers=numbers, kinds=kinds)


def pad_sizes(
    matches: Matches, config: Mapping[str, Any], pad_for: int, ranks: int
) -> tuple[Matches, list[str]]:
    """Pad intermediate and vocabulary sizes so that ``pad_for`` ranks get equal parts of complete units.

    All tensors with the same size of ``config`` are padded in the same way, including their scales and zero
    points, and including replicated ones such as embeddings or shared experts. ``ranks`` is the number of
    ranks to write. ``matches`` are those of :func:`separate_sizes`.

    Returns:
        The new matches, and a warning for each kind that stays uneven because ``config`` lacks its size.

    Raises:
        PlanError: only some tensors of a size would be padded, sharding over ``ranks`` would mix fused parts,
            or appended zeros would not be zeros after dequantisation.
    """
    kinds = list(matches.kinds)
    groups, warnings = _group_kinds(kinds, config, pad_for)
    sized = {number for members in groups.values() for number, _, _ in members}
    for (counts, size), members in groups.items():
        units = (math.lcm(own.pad_to or 1, math.lcm(own.unit, own.pack) * pad_for) for _, own, _ in members)
        pad_to = math.lcm(*units)
        names = [kinds[number].tensor.name for number, _, _ in members]
        growth = _Growth(counts, size, -(-size // pad_to) * pad_to, names, config)
        if growth.padded == size:
            continue
        if counts == "inner" and has_shared_offset(config):
            label = kinds[members[0][0]].tensor.label
            raise PlanError(
                f"{label} cannot be padded {growth}: with an offset and a single scale, zeros change"
            )
        for number, own, times in members:
            kinds[number] = _pad_sharded(kinds[number], own, times, growth, pad_to, ranks)
        lengths = {size, *(size * times * len(own.sections or (0,)) for _, own, times in members)}
        for number in {*range(len(kinds))} - {number for number, _, _ in members}:
            kinds[number] = _pad_other(kinds[number], growth, lengths, is_sized=number in sized)
    return replace(matches, kinds=tuple(kinds)), warnings


class _Growth:
    """A size of category ``counts`` in ``config``, its padded value, and the ``names`` of padded tensors."""

    def __init__(
        self, counts: str, size: int, padded: int, names: Sequence[str], config: Mapping[str, Any]
    ) -> None:
        self.counts, self.size, self.padded, self.names = counts, size, padded, names
        self.quantised = "quantization_config" in config
        self.others = find_sizes(config, "hidden_size") if counts == "inner" else ()
        """Hidden sizes if an inner size grows: an axis of such a length may not have the inner size."""

    def __str__(self) -> str:
        return f"from {self.size} to {self.padded}"


_Member = tuple[int, AxisSharding, int]
"""The index of a kind, how it is sharded, and how often each of its sections contains the size."""


def _group_kinds(
    kinds: Sequence[TensorKind], config: Mapping[str, Any], pad_for: int
) -> tuple[dict[tuple[str, int], list[_Member]], list[str]]:
    """Group kinds whose sharded axis consists of a size in ``config``, by its category and value.

    The second result has a warning for each kind that is left uneven, as ``config`` lacks its size.
    """
    sizes, warnings = dict(iter_sizes(config)), list[str]()
    groups: dict[tuple[str, int], list[_Member]] = {}
    for number, kind in enumerate(kinds):
        own = kind.axis_sharding
        counts = "" if own is None else classify_axis(kind.tensor, own.axis)
        if own is None or counts not in _NAMES or len(set(own.sections or (0,))) > 1:
            continue
        size, times = _find_size(kind.tensor, own, counts, sizes)
        if times:
            groups.setdefault((counts, size), []).append((number, own, times))
        elif (length := kind.tensor.shape[own.axis]) % pad_for:
            warnings.append(f"{kind.tensor.label} is not padded: config.json has no {counts} size {length}")
    return groups, warnings


def _pad_sharded(
    kind: TensorKind, own: AxisSharding, times: int, growth: _Growth, pad_to: int, ranks: int
) -> TensorKind:
    """Return a kind with padded sections. ``times`` is how often each section contains the size."""
    fused = times > 1 and _FUSED.search(kind.tensor.name) is not None
    if fused and ranks > 1:
        what = f"{times} fused parts cannot be padded {growth}: the rule shards them as one. Set"
        what += " sections in a plan, or pad a whole model: --ranks 1 --pad-for N (pad_for=N)"
        raise PlanError(kind.add_context(what))
    new = replace(own, pad_to=pad_to if fused or times == 1 else growth.padded * times)
    return replace(kind, axis_sharding=replace(new, sections=(growth.size,) * times) if fused else new)


def _pad_other(kind: TensorKind, growth: _Growth, lengths: Collection[int], *, is_sized: bool) -> TensorKind:
    """Return a kind that is not sharded along the size that grows.

    It is padded if it is replicated and certainly has the size. ``lengths`` are those of the padded axes.
    Raise PlanError if the kind has the size, but is not padded.
    """
    if kind.axis_sharding is None and not kind.rule.cuts:
        own = _pad_replicated(kind.tensor, growth)
        axes = [axis for axis, length in enumerate(kind.tensor.shape) if length in lengths]
        wrong = own is None and any(classify_axis(kind.tensor, axis) == growth.counts for axis in axes)
        kind = replace(kind, axis_sharding=own)
    else:
        wrong = _is_left(kind, growth, is_sized=is_sized)
    if not wrong:
        return kind
    what = f"the size {growth.size} is padded to {growth.padded} for {shown(growth.names[0])}, but not here"
    what += ": shard it, too"
    what += ", or set replicate = true" if growth.counts == "vocabulary" else ""
    rule = replace(kind.rule, match=(kind.tensor.name,), fields={"hf": "replicate"})
    if not _is_left(replace(kind, rule=rule, axis_sharding=None), growth):
        what += ', or set hf = "replicate" in a rule for it if it is another size'
    raise PlanError(kind.add_context(what))


def _has_size_of(kind: TensorKind, counts: str, names: Sequence[str]) -> bool:
    """Return whether an axis of ``kind`` has the same size as tensors ``names`` by design, not by chance.

    Only a rule with hf = "replicate" declares that it is chance. It is ignored if it matches all
    tensors ("*") and, if the category ``counts`` is the vocabulary, for embeddings of tokens, otherwise for
    tensors in the same layers as ``names``.
    """
    if kind.axis_sharding is not None or "hf" not in kind.rule.fields or "*" in kind.rule.match:
        return True
    name = kind.tensor.name
    if counts == "vocabulary":
        return _TOKENS.search(name) is not None
    return _find_layers(name) in map(_find_layers, names)


def _find_layers(name: str) -> str:
    """Return a tensor's name up to its first number or, without a number, up to the parent of its module."""
    parts = name.split(".")
    first = next((at for at, part in enumerate(parts) if part.isdigit()), max(0, len(parts) - 2))
    return ".".join(parts[:first])


def _is_replicated(kind: TensorKind) -> bool:
    """Return whether a rule keeps a tensor complete. Biases of modules with sharded weights do not count."""
    word = kind.rule.fields.get("hf")
    return kind.axis_sharding is None and (word is None or not read_table("tp_styles.toml")[word])


def _is_left(kind: TensorKind, growth: _Growth, *, is_sized: bool = False) -> bool:
    """Return whether a tensor stays unpadded although one of its axes has the size that others are padded in.

    An inner size that equals a hidden size does not count, nor does the sharded axis if ``is_sized``: it has
    another size of the configuration. Axes of quantised weights may count words or groups, so divisors of the
    size count, too.
    """
    tensor, own, counts = kind.tensor, kind.axis_sharding, growth.counts
    if own is None and not _is_replicated(kind):
        return False
    for axis, length in enumerate(tensor.shape):
        category, cut = classify_axis(tensor, axis), own if own is not None and own.axis == axis else None
        pack = 1 if cut is None else cut.pack
        elements = length * pack
        if (cut is not None and is_sized) or elements in growth.others:
            continue
        if cut is not None and cut.pad_to and -(-elements // cut.pad_to) * cut.pad_to == growth.padded:
            continue
        same = category == counts and _count_sizes(tensor.name, counts, length, pack, growth.size) > 0
        if own is None and category == counts and growth.quantised:  # the axis may count words or groups
            same |= length > 1 and growth.size % length == 0
        if same and _has_size_of(kind, counts, growth.names):
            return True
        if cut is not None and not category and counts == "inner" and elements == growth.size:
            return _find_layers(tensor.name) in map(_find_layers, growth.names)
    return False


def _pad_replicated(tensor: StoredTensor, growth: _Growth) -> AxisSharding | None:
    """Return how a replicated tensor is padded, or None unless exactly one axis certainly has the size.

    Such an axis has the vocabulary size, or the inner size of shared experts if that is not a hidden size.
    """
    if growth.counts == "inner" and "shared" not in tensor.name:
        return None
    found = [
        (axis, times)
        for axis, length in enumerate(tensor.shape)
        if classify_axis(tensor, axis) == growth.counts
        and length not in growth.others
        and (times := _count_sizes(tensor.name, growth.counts, length, 1, growth.size))
    ]
    if len(found) != 1:
        return None
    [(axis, times)] = found
    sections = (growth.size,) * times if times > 1 and _FUSED.search(tensor.name) else None
    whole = growth.padded if sections else growth.padded * times
    every = frozenset(range(len(sections or (0,))))
    return AxisSharding(axis, sections, unit=whole, replicate=every, pad_to=whole)


def _find_size(
    tensor: StoredTensor, own: AxisSharding, counts: str, sizes: Mapping[_Place, int]
) -> tuple[int, int]:
    """Return the configured size that makes up an axis and its count per section, or zeros without one."""
    length, parts = tensor.shape[own.axis], len(own.sections or (0,))
    found = [
        (times, size)
        for place, size in sizes.items()
        if SIZE_KEYS[counts].search(place[-1])
        and (times := _count_sizes(tensor.name, counts, length, own.pack, size)) % parts == 0 < times
    ]
    times, size = min(found, default=(0, 0))
    return size, times // parts


def make_padded_config(
    matches: Matches, cuts: Sequence[TensorSharding], config: Mapping[str, Any], layout: str
) -> PaddedConfig:
    """Return the ``config.json`` of ranks with padded sizes.

    It does not change for the layout ``dcp``, which has no padding. For ``vllm``, a vocabulary size does not
    change if it grows by less than vLLM's own padding.
    """
    if not config or layout == "dcp":
        return PaddedConfig()
    sizes = dict(iter_sizes(config))
    wanted: dict[_Place, dict[int, TensorKind]] = {}
    lost: list[TensorKind] = []
    for kind, cut in zip(matches.kinds, cuts, strict=True):
        axis_sharding = kind.axis_sharding
        if axis_sharding is None or not cut.padded:
            continue
        counts = classify_axis(kind.tensor, axis_sharding.axis)
        padded = cut.padded * axis_sharding.pack
        added = cut.padded - kind.tensor.shape[axis_sharding.axis]
        if layout == "vllm" and counts == "vocabulary" and added < _VLLM_PADDING:
            continue
        found = list(_iter_changes(counts, kind, axis_sharding, padded, sizes))
        for place, new in found:
            wanted.setdefault(place, {}).setdefault(new, kind)
        if not found:
            lost.append(kind)
    document = json.loads(json.dumps(config))
    warnings, changed = list[str](), False
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
    warnings += _warn_of_groups(sizes, dict(iter_sizes(document)))
    shapes = [kind.tensor.name for kind in matches.kinds if kind.tensor.name.endswith(".weight_shape")]
    if shapes and any(cut.padded for cut in cuts):
        warnings.append(f"{shown(shapes[0])} and others of its kind keep the sizes without padding")
    for kind in lost:
        axis = kind.axis_sharding.axis if kind.axis_sharding is not None else 0
        warnings.append(
            f"config.json has no size for axis {axis} of {shown(kind.tensor.name)}, which "
            f"{kind.rule.label_for(kind.tensor.name)} pads: set it when you load the ranks"
        )
    text = f"{json.dumps(document, indent=2, ensure_ascii=False)}\n".encode() if changed else None
    return PaddedConfig(text, tuple(dict.fromkeys(warnings)))


def _iter_changes(
    counts: str, kind: TensorKind, own: AxisSharding, padded: int, sizes: Mapping[_Place, int]
) -> Iterator[tuple[_Place, int]]:
    """Yield the path of each size in a configuration that padding changes, and its new value."""
    name, length = kind.tensor.name, kind.tensor.shape[own.axis]
    if counts in (QUERIES, KEYS):
        for place, heads in sizes.items():
            each, rest = divmod(length * own.pack, heads)
            if place[-1] == counts and rest == 0 and padded % each == 0:
                yield place, padded // each
        return
    keys = [SIZE_KEYS[counts]] if counts else list(SIZE_KEYS.values())
    found = {
        place: _count_sizes(name, counts, length, own.pack, size)
        for place, size in sizes.items()
        if any(key.search(place[-1]) for key in keys)
    }
    same = [place for place, times in found.items() if times == 1]
    if same:
        yield from ((place, padded) for place in (same if counts or len(same) == 1 else ()))
        return
    yield from ((place, padded // times) for place, times in found.items() if times and padded % times == 0)


def _find_unpadded(matches: Matches, cuts: Sequence[TensorSharding], kind: TensorKind) -> TensorKind | None:
    """Return a kind that should be padded like ``kind`` but is not, or None.

    It has an axis with the same category and size as the padded axis of ``kind``.
    """
    axis_sharding = kind.axis_sharding
    assert axis_sharding is not None  # padded kinds have one
    counts, size = (
        classify_axis(kind.tensor, axis_sharding.axis),
        kind.tensor.shape[axis_sharding.axis] * axis_sharding.pack,
    )
    for other, cut in zip(matches.kinds, cuts, strict=True):
        tensor, own = other.tensor, other.axis_sharding
        if own is None and not (_is_replicated(other) and _has_size_of(other, counts, [kind.tensor.name])):
            continue
        pack, axes = (1, range(len(tensor.shape))) if own is None else (own.pack, (own.axis,))
        same = (axis for axis in axes if tensor.shape[axis] * pack == size)
        if counts and not cut.padded and any(classify_axis(tensor, axis) == counts for axis in same):
            return other
    return None


def _set(part: dict[str, Any], key: str, value: int) -> None:
    """Set a size. Omitted sizes whose defaults depend on it are set to their former defaults."""
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
