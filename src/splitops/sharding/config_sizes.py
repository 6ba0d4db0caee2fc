"""Sizes in the ``config.json`` of a model: which axis of a tensor, by its name, has which of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from splitops.files.tensors import StoredTensor
from splitops.sharding.heads import KEYS, QUERIES, find_heads

SIZE_NAMES: Final = {
    "vocabulary": re.compile(
        r"embed|lm_head|vocab|wte|predictions|logits|(^|\.)(output|shared)\.(weight|bias)$"
    ),
    "inner": re.compile(
        r"mlp|moe|ffn|feed_forward|expert|intermediate|(^|[._])(up|down|gate|fc\d?|w[123])[._]"
    ),
}
"""Names of the tensors with an axis of each category of sizes."""
SIZE_KEYS: Final = {
    "vocabulary": re.compile(r"vocab|num_embeddings"),
    "inner": re.compile(r"intermediate|ffn|inner|d_ff|mlp|feed_forward|expert_(dim|size|hidden)"),
    "experts": re.compile(r"^(moe_)?(num|n)_((?!shared)\w+_)?experts$"),
}
"""Keys of configurations for each category of sizes."""

_ROUTER: Final = re.compile(r"router|(^|\.)gate\.(weight|bias|e_score_correction_bias)$")
"""Names of the tensors that route to experts, with one entry per expert along axis 0."""

FUSED: Final = re.compile(r"gate_(and_)?up|up_gate|w1[23]|input_linear|fc1|h_to_4h|(^|[._])wi[._]")
"""Names of the tensors that may be gate and up projections, fused along one axis."""

Place = tuple[str, ...]
"""The path of a size in a configuration: one key, or ``text_config`` and a key in it."""


def iter_sizes(config: Mapping[str, Any]) -> Iterator[tuple[Place, int]]:
    """Yield the paths and sizes in a configuration and its ``text_config``, with default key heads."""
    inner = config.get("text_config")
    for place, part in (((), config), (("text_config",), inner if isinstance(inner, Mapping) else {})):
        for key, value in part.items():
            if type(value) is int and value > 0:
                yield (*place, key), value
        heads = part.get(QUERIES)
        if type(heads) is int and heads > 0 and part.get(KEYS) is None:
            yield (*place, KEYS), heads


def classify_axis(tensor: StoredTensor, axis: int) -> str:
    """Return the category of an axis, or the key of its number of heads; "" if the name shows neither."""
    name, rank = tensor.name, len(tensor.shape)
    routes = _ROUTER.search(name) is not None
    if routes or (axis == 0 and "expert" in name and rank > 2):
        return "experts" if axis == 0 else ""
    named = next((what for what, names in SIZE_NAMES.items() if names.search(name)), "")
    return find_heads(name, rank, axis) or named


def count_sizes(name: str, counts: str, length: int, pack: int, size: int) -> int:
    """Return how many times a size is in an axis of ``length`` by ``pack`` elements, or 0 if it does not fit.

    Gate and up projections may be fused, and shared experts may be one layer. The last element may not be
    full, such as the last block of a scale.
    """
    times = length * pack // size
    limit = 1 if counts != "inner" else 2 if FUSED.search(name) else length if "shared" in name else 1
    return times if times <= limit and -(-size * times // pack) == length else 0
