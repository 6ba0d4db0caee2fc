"""MatMul, and DepthToSpace and SpaceToDepth, which move elements between channels and spatial axes."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final

import numpy as np

from splitops.models.abstract_values import MAX_ELEMENTS, AbstractTensor
from splitops.models.ops.integer_math import divide, multiply
from splitops.models.ops.operator import (
    Attribute,
    Operands,
    Operator,
    Spelling,
    Unknown,
    as_flag,
    as_integer,
    reject_rounding,
)
from splitops.models.ops.shapes import broadcast, to_size
from splitops.spec.sizes.dims import Shape


def _infer_matmul(operands: Operands) -> AbstractTensor:
    left, right = (_read_matrix_shape(operands, name, f"transposes_{name}") for name in ("data", "other"))
    if not left or not right:
        raise Unknown("a scalar")
    shape = broadcast(left[:-2], right[:-2])
    rows = left[-2:-1] if len(left) > 1 else ()
    return AbstractTensor(operands.get_type(), (*shape, *rows, *(right[-1:] if len(right) > 1 else ())))


def _read_matrix_shape(operands: Operands, name: str, transposes: str) -> Shape:
    shape = operands.get_shape(name)
    is_transposed = operands.get(transposes, False) and len(shape) > 1
    return (*shape[:-2], shape[-1], shape[-2]) if is_transposed else shape


def _fold_matmul(operands: Operands, *factors: Any) -> Any:
    reject_rounding(*factors)
    left, right = (
        np.swapaxes(factor, -1, -2)
        if factor.ndim > 1 and operands.get(f"transposes_{name}", False)
        else factor
        for factor, name in zip(factors, ("data", "other"), strict=True)
    )
    batches = math.prod(np.broadcast_shapes(left.shape[:-2], right.shape[:-2]))
    if batches * left.size * right.size > MAX_ELEMENTS:
        raise ValueError("too many products")
    return np.matmul(left, right)


def _infer_blocks(operands: Operands, *, to_depth: bool) -> AbstractTensor:
    """Infer the result of moving blocks of elements from the spatial axes to the channels, or back."""
    shape, block = operands.get_shape(), operands["block"]
    if len(shape) < 3 or block < 1:
        raise Unknown("no space")
    depth, space = (multiply, divide) if to_depth else (divide, multiply)
    channels = to_size(depth(shape[1], block ** (len(shape) - 2)))
    sizes = [to_size(space(size, block)) for size in shape[2:]]
    return AbstractTensor(operands.get_type(), (shape[0], channels, *sizes))


_TRANSPOSES: Final = {
    "transposes_data": Attribute(as_flag, default=False, name="transpose_a"),
    "transposes_other": Attribute(as_flag, default=False, name="transpose_b"),
}
_BLOCK: Final = {"block": Attribute(as_integer, name="blocksize")}
_BLOCK_SIZE: Final = {"block": Attribute(as_integer, 1, "block_size")}

MATRICES: Final = (
    Operator(
        onnx=(Spelling("MatMul", "data other"),),
        openvino=(Spelling("MatMul", "data other", _TRANSPOSES),),
        infer=_infer_matmul,
        fold=_fold_matmul,
    ),
    *(
        Operator(
            onnx=(Spelling(name, "data", _BLOCK),),
            openvino=(Spelling(name, "data", _BLOCK_SIZE),),
            infer=partial(_infer_blocks, to_depth=name == "SpaceToDepth"),
        )
        for name in ("DepthToSpace", "SpaceToDepth")
    ),
)
