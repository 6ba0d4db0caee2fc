"""Operators that only ONNX has. Their output sizes follow from elements of tensors or from sequences."""

from __future__ import annotations

from typing import Final

from splitops.models.abstract_values import AbstractSequence, AbstractTensor, make_partial_value
from splitops.models.ops.operator import Attribute, Operands, Operator, Spelling, Unknown, as_flag, as_integer
from splitops.models.ops.shapes import join_sequence, to_size
from splitops.models.ops.writing import INT64


def _get_sequence(operands: Operands) -> AbstractSequence:
    sequence = operands["data"]
    if not isinstance(sequence, AbstractSequence):
        raise Unknown("the sequence is unknown")
    return sequence


def _infer_concat(operands: Operands) -> AbstractTensor:
    sequence = _get_sequence(operands)
    return AbstractTensor(
        sequence.element.type, join_sequence(sequence, operands["axis"], stacked=operands["stacked"])
    )


def _infer_weights(operands: Operands) -> AbstractTensor:
    length = operands.get_entry("length")
    bins = length // 2 + 1 if isinstance(length, int) and length >= 0 else None
    return AbstractTensor(None, (to_size(bins), to_size(operands.get_entry("bins"))))


_STACKED: Final = {
    "axis": Attribute(as_integer),
    "stacked": Attribute(as_flag, default=False, name="new_axis"),
}

ONNX_ONLY: Final = (
    Operator(onnx=(Spelling("ConcatFromSequence", "data", _STACKED, since=11),), infer=_infer_concat),
    Operator(
        onnx=(Spelling("SequenceLength", since=11),),
        infer=lambda operands: AbstractTensor(INT64, (), make_partial_value(_get_sequence(operands).length)),
    ),
    Operator(
        onnx=tuple(Spelling(f"{name}Window", "size", since=17) for name in ("Blackman", "Hamming", "Hann")),
        infer=lambda operands: AbstractTensor(None, (to_size(operands.get_entry("size")),)),
    ),
    Operator(
        onnx=(Spelling("MelWeightMatrix", "bins length rate lower upper", since=17),), infer=_infer_weights
    ),
    Operator(
        onnx=(Spelling("MaxUnpool", "data indices shape", since=9),),
        infer=lambda operands: AbstractTensor(
            operands.get_type(), tuple(map(to_size, operands.get_entries("shape")))
        ),
    ),
)
