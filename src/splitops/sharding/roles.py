"""Known tensors of decoders: the sizes that ``config.json`` implies, and signs of missing tensors."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

from splitops.errors import PlanError, shown
from splitops.files.tensors import StoredTensor
from splitops.sharding.expressions import Names
from splitops.sharding.heads import KEYS, QUERIES
from splitops.sharding.padding import find_sizes, iter_sizes

_PREFIX: Final = r"(?:(?:module|model|language_model|backbone|encoder|decoder|transformer)\.)*"
_LAYER: Final = re.compile(rf"({_PREFIX})layers\.(\d+)\.(.+)")
_NUMBER: Final = re.compile(r"\.\d+\.")
_ROLES: Final = tuple(
    (re.compile(rf"{_PREFIX}{pattern}"), tuple(sizes.split()))
    for pattern, sizes in (
        (
            r"(?:lm_head|output_layer|output|embed_tokens|tok_embeddings|(?:embedding\.)?word_embeddings)",
            "vocabulary hidden",
        ),
        (r"(?:norm|final_layernorm|final_norm)", "hidden"),
        (r"layers\.\d+\.(?:\w+\.linear_\w+\.layer_norm|attention_norm|ffn_norm)", "hidden"),
        (r"layers\.\d+\.(?:input|post_attention|pre_mlp|(?:pre|post)_feedforward)_layernorm", "hidden"),
        (r"layers\.\d+\.(?:self_attn\.q_proj|attention\.wq)", "queries hidden"),
        (r"layers\.\d+\.(?:self_attn\.[kv]_proj|attention\.w[kv])", "keys hidden"),
        (
            r"layers\.\d+\.(?:self_attn\.qkv_proj|self_attention\.linear_qkv"
            r"|(?:self_)?attention\.query_key_value)",
            "fused hidden",
        ),
        (
            r"layers\.\d+\.(?:self_attn\.o_proj|attention\.wo|self_attention\.linear_proj"
            r"|(?:self_)?attention\.dense)",
            "hidden heads",
        ),
        (r"layers\.\d+\.(?:mlp\.(?:gate|up)_proj|feed_forward\.w[13])", "inner hidden"),
        (r"layers\.\d+\.mlp\.experts\.\d+\.(?:gate|up)_proj", "expert hidden"),
        (r"layers\.\d+\.mlp\.experts\.\d+\.down_proj", "hidden expert"),
        (r"layers\.\d+\.block_sparse_moe\.experts\.\d+\.w[13]", "inner hidden"),
        (r"layers\.\d+\.block_sparse_moe\.experts\.\d+\.w2", "hidden inner"),
        (r"layers\.\d+\.mlp\.gate_up_proj", "twice hidden"),
        (r"layers\.\d+\.mlp\.(?:linear_fc1|dense_h_to_4h)", "gated hidden"),
        (r"layers\.\d+\.mlp\.experts\.local_experts\.\d+\.linear_fc1", "gated_expert hidden"),
        (r"layers\.\d+\.mlp\.experts\.local_experts\.\d+\.linear_fc2", "hidden expert"),
        (r"layers\.\d+\.(?:mlp\.(?:down_proj|linear_fc2|dense_4h_to_h)|feed_forward\.w2)", "hidden inner"),
    )
)
"""Patterns of module names, with the name of the size of each axis of the weight in :class:`Roles`."""
_COMPLETE: Final = tuple(
    each.split()
    for each in (
        "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj",
        "self_attn.qkv_proj self_attn.o_proj",
        "mlp.gate_proj mlp.up_proj mlp.down_proj",
        "mlp.gate_up_proj mlp.down_proj",
        "self_attention.linear_qkv self_attention.linear_proj",
        "mlp.linear_fc1 mlp.linear_fc2",
        "self_attention.query_key_value self_attention.dense",
        "mlp.dense_h_to_4h mlp.dense_4h_to_h",
        "attention.wq attention.wk attention.wv attention.wo",
        "feed_forward.w1 feed_forward.w2 feed_forward.w3",
    )
)
"""Groups of modules that a layer usually has together."""
_OUTSIDE: Final = {
    "embeddings": re.compile(r"embed|wte"),
    "final norm": re.compile(r"(^|[._])(norm|ln_f|layernorm|layer_norm|final_norm)\.(weight|bias)$"),
}
"""Patterns of the names of tensors that each decoder has outside of its layers."""
_VARIABLE: Final = re.compile(r"heads|attention_other|intermediate|block_config|ffn")
"""Pattern of keys for sizes that differ between layers if the value is a list or an object."""


class Roles:
    """The sizes that ``config.json`` implies, as sets, since a model may have several kinds of layers."""

    def __init__(self, config: Mapping[str, Any], names: Names) -> None:
        sizes = [(place[-1], size) for place, size in iter_sizes(config) if "linear" not in place[-1]]
        inside = config.get("text_config")
        keys = {**(inside if isinstance(inside, Mapping) else {}), **config}
        each = {size for key, size in sizes if "head_dim" in key}
        with suppress(PlanError):
            each.add(names.evaluate("head_dim"))
        queries, key_heads = (
            {n for key, n in sizes if count.removeprefix("num_") in key} for count in (QUERIES, KEYS)
        )
        self.heads = {
            QUERIES: {
                n * size * times for n in queries for size in each for times in (1, 2)
            },  # 2 with a gate
            KEYS: {n * size for n in key_heads for size in each},
        }
        """The sizes that an axis of heads may have, by the key of ``config.json`` for the number of heads."""
        self._known: dict[str, set[int]] = {
            "hidden": find_sizes(config, "hidden_size"),
            "vocabulary": find_sizes(config, "vocab_size"),
        }
        if any(isinstance(value, list | dict) and _VARIABLE.search(key) for key, value in keys.items()):
            return
        inner = find_sizes(config, "intermediate_size") | find_sizes(config, "ffn_hidden_size")
        inner |= {2 * size for size in inner if keys.get("use_double_wide_mlp")}
        self._known |= {"inner": inner, "twice": {2 * n for n in inner}}
        own = {n for key, n in sizes if re.search(r"^(?!.*shared).*(moe|expert).*(intermediate|ffn)", key)}
        self._known["expert"] = own or inner
        self._known["gated"] = inner | self._known["twice"]
        self._known["gated_expert"] = {n * times for n in own or inner for times in (1, 2)}
        if keys.get("kv_lora_rank"):  # heads of latent attention have several sizes
            return
        times = (1, 2) if "attn_output_gate" in keys or "linear_num_value_heads" in keys else (1,)
        self._known["heads"] = {n * size for n in queries for size in each}
        self._known["keys"] = self.heads[KEYS]
        self._known["queries"] = {n * t for n in self._known["heads"] for t in times}
        self._known["fused"] = {
            (n * t + 2 * k) * size for n in queries for k in key_heads for size in each for t in times
        }

    def find_sizes(self, tensor: StoredTensor, axis: int) -> Collection[int]:
        """Return the sizes that an axis of an unsharded tensor may have. Empty if they are unknown."""
        if not tensor.code.startswith(("F", "BF")) or "_" in tensor.code:  # packed or quantised
            return ()
        axes = _find_axes(_NUMBER.sub(".0.", tensor.name))
        return self._known.get(axes[axis], ()) if axes and len(tensor.shape) in (1, len(axes)) else ()


@lru_cache(maxsize=4096)
def _find_axes(name: str) -> tuple[str, ...]:
    """Return the names that :class:`Roles` uses for the sizes of a tensor. Empty if the tensor is unknown."""
    module, _, leaf = name.rpartition(".")
    if leaf.startswith("layer_norm_"):
        module = f"{module}.layer_norm"
    elif leaf not in ("weight", "bias"):
        return ()
    return next((axes for pattern, axes in _ROLES if pattern.fullmatch(module)), ())


def find_missing(names: Collection[str], config: Mapping[str, Any]) -> Iterator[str]:
    """Yield messages about tensors that a decoder seems to lack, given its tensor names and ``config``."""
    stacks: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name in names:
        if (match := _LAYER.fullmatch(name)) is not None and len(match[2]) < 10:
            stacks[match[1]][int(match[2])].add(match[3])
    stated = find_sizes(config, "num_hidden_layers")
    for prefix, layers in stacks.items():
        count = max([*layers, *(size - 1 for size in stated if len(stacks) == 1 and size <= 1 << 16)]) + 1
        if len(layers) < count:
            first = next(number for number in range(count) if number not in layers)
            yield f"layer {first} of {count} of {shown(prefix + 'layers')} has no tensors"
        largest = sorted({frozenset(own) for own in layers.values()}, key=len, reverse=True)[:64]
        for number, own in sorted(layers.items()):
            more = next((other for other in largest if own < other), None)
            label = f"layer {number} of {shown(prefix + 'layers')} lacks"
            if more is not None:
                yield f"{label} {shown(min(more - own))}, which other layers have"
                continue
            modules = {name.rpartition(".")[0] for name in own}
            latent = any(".kv_" in module for module in modules)
            for group in _COMPLETE:
                lacks = [each for each in group if each not in modules]
                others = [each for each in group if each in modules]
                is_other = "gate" in "".join(lacks) and len(lacks) == 1  # the MLP has no gate
                shared = others == ["self_attn.o_proj"] or others == ["mlp.down_proj"]
                if lacks and others and not (is_other or shared or (latent and "self_attn" in group[0])):
                    yield f"{label} {shown(lacks[0])}, although it has {shown(others[0])}"
    if stacks:
        outside = [name for name in names if _LAYER.fullmatch(name) is None]
        for what, pattern in _OUTSIDE.items():
            if not any(map(pattern.search, outside)):
                yield f"there are layers, but no {what}"
