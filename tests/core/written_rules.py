"""The rules of docs/semantics.md once more, naively: an oracle that shares nothing with the code under test.

It knows no schema row and no plan. Every broken rule is listed, where the code under test stops at the first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

ATTRIBUTES = {
    ("", "Split", 1): {"axis", "split"},
    ("", "Split", 2): {"axis", "split"},
    ("", "Split", 11): {"axis", "split"},
    ("", "Split", 13): {"axis"},
    ("", "Split", 18): {"axis", "num_outputs"},
    ("", "SplitToSequence", 11): {"axis", "keepdims"},
    ("", "SplitToSequence", 24): {"axis", "keepdims"},
    ("openvino", "Split", 1): {"num_splits"},
    ("openvino", "VariadicSplit", 1): set(),
}
INPUTS = {
    ("", "Split", 1): 2,
    ("", "Split", 2): 1,
    ("", "Split", 11): 1,
    ("", "Split", 13): 2,
    ("", "Split", 18): 2,
    ("", "SplitToSequence", 11): 2,
    ("", "SplitToSequence", 24): 2,
    ("openvino", "Split", 1): 2,
    ("openvino", "VariadicSplit", 1): 3,
}
FLOATS = {"float16", "float32", "float64"}
PLAIN = FLOATS | {"bool", "complex64", "complex128"}
PLAIN |= {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}

Key = tuple[str, str, int]
Array = np.ndarray[Any, Any]


def takes(key: Key, dtype: str) -> bool:
    """Whether a version takes data of one of NumPy's own dtypes."""
    if key == ("", "Split", 1):
        return dtype in FLOATS
    return dtype in (PLAIN - {"complex64", "complex128"} if key[0] == "openvino" else PLAIN)


def broken_rules(
    key: Key, attributes: Mapping[str, Any], inputs: Sequence[Array | None], outputs: int | None
) -> set[str]:
    """Return the code of every rule that a node breaks; none where it is valid."""
    domain, name, _ = key
    data = inputs[0]
    assert data is not None
    given = [value for value in inputs[INPUTS[key] :] if value is not None]
    codes = {"op.version"} if set(attributes) - ATTRIBUTES[key] or given else set()
    if not takes(key, data.dtype.name):
        codes.add("type.unsupported")
    known = dict(zip(_input_names(key), inputs[1:], strict=False))
    size, axis_codes = _axis_size(key, attributes, known.get("axis"), data)
    codes |= axis_codes
    if name == "SplitToSequence":
        if attributes.get("keepdims", 1) not in (0, 1):
            codes.add("keepdims.value")
        if outputs not in (None, 1):
            codes.add("outputs.count")
        outputs = None
    attribute = attributes.get("split") if "split" in ATTRIBUTES[key] else None
    tensor = known.get("split_lengths" if domain else "split")
    if attribute is not None and tensor is not None:
        return codes | {"lengths.conflict"}
    number = attributes.get("num_outputs") if key == ("", "Split", 18) else None
    if number is not None and tensor is not None:
        return codes | {"lengths.conflict"}
    if tensor is not None:
        return codes | _tensor_codes(key, tensor, data, size, outputs)
    if attribute is not None:
        return codes | _length_codes(key, attribute, size, outputs)
    if key in (("", "Split", 18), ("openvino", "Split", 1)):
        number = attributes.get("num_outputs", attributes.get("num_splits"))
        if number is None:
            return codes | {"lengths.missing"}
        if number < 1:
            return codes | {"parts.count"}
        if outputs is not None and (outputs < 1 or outputs > number):
            codes.add("outputs.count")
        if domain and size is not None and size % number != 0:
            codes.add("parts.divisible")
    elif name == "Split":
        if outputs is None:
            return codes | {"lengths.missing"}
        if outputs < 1:
            return codes | {"outputs.count"}
        if size is not None and size % outputs != 0:
            codes.add("parts.divisible")
    return codes


def _input_names(key: Key) -> list[str]:
    if key[0] == "openvino":
        return ["axis", "split_lengths"][: INPUTS[key] - 1]
    return ["split"][: INPUTS[key] - 1]


def _axis_size(
    key: Key, attributes: Mapping[str, Any], tensor: Array | None, data: Array
) -> tuple[int | None, set[str]]:
    codes = {"axis.range"} if data.ndim == 0 else set()
    if key[0] == "openvino":
        assert tensor is not None
        if tensor.dtype.kind not in "iu":
            codes.add("axis.dtype")
        if tensor.shape != () and (key[1] == "Split" or tensor.shape != (1,)):
            codes.add("axis.rank")
        if codes:
            return None, codes
        axis = tensor.reshape(-1).tolist()[0]
    else:
        axis = attributes.get("axis", 0)
        if codes:
            return None, codes
    if axis < -data.ndim or axis > data.ndim - 1:
        return None, {"axis.range"}
    return data.shape[axis], set()


def _tensor_codes(key: Key, tensor: Array, data: Array, size: int | None, outputs: int | None) -> set[str]:
    codes = set()
    if key == ("", "Split", 1):
        typed = tensor.dtype == data.dtype and tensor.dtype.name in FLOATS
    elif key[1] == "Split":
        typed = tensor.dtype == np.int64
    elif key[1] == "SplitToSequence":
        typed = tensor.dtype in (np.int32, np.int64)
    else:
        typed = tensor.dtype.kind in "iu"
    if not typed:
        codes.add("lengths.dtype")
    if tensor.ndim != 1 and not (tensor.ndim == 0 and key[1] == "SplitToSequence"):
        codes.add("lengths.rank")
    if codes:
        return codes
    if tensor.ndim == 0:
        return {"chunk.positive"} if tensor.item() < 1 else set()
    lengths = tensor.tolist()
    if any(not math.isfinite(length) or length != math.floor(length) for length in lengths):
        return {"lengths.value"}
    return _length_codes(key, [int(length) for length in lengths], size, outputs)


def _length_codes(key: Key, lengths: Sequence[int], size: int | None, outputs: int | None) -> set[str]:
    codes = set()
    if any(abs(length) > 2**63 - 1 for length in lengths):
        codes.add("lengths.value")
    if key[1] == "VariadicSplit":
        negative = [length for length in lengths if length < -1]
        rest = list(lengths).count(-1)
    else:
        negative = [length for length in lengths if length < 0]
        rest = 0
    if negative:
        codes.add("lengths.negative")
    if rest > 1:
        codes.add("remainder.repeated")
    if key[1] != "SplitToSequence" and (len(lengths) == 0 or outputs not in (None, len(lengths))):
        codes.add("lengths.count")
    if codes or size is None:
        return codes
    total = sum(length for length in lengths if length >= 0)
    if rest == 1:
        return {"remainder.negative"} if total > size else set()
    return {"lengths.sum"} if total != size else set()
