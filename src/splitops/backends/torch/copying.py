"""Copies as torch operators, so that dispatch modes, ``torch.compile`` and autograd can handle them.

``splitops::split_copy`` returns the parts in new memory; ``splitops::split_into`` copies them into given
buffers, without autograd. The native core copies most CPU tensors, but not small ones in ``split_copy``.
Torch's own operators copy the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any, Final

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from splitops import native
from splitops.backends.memory import check_disjoint, make_placeholder
from splitops.backends.torch.bridge import from_numpy, get_memory_layout, to_numpy
from splitops.errors import ArrayError

Tensors = Sequence[torch.Tensor]

_SMALL: Final = 1 << 20
"""Up to this size in bytes, aten's operator is faster than calling the native core."""
_SMALL_RUNS: Final = 1 << 16
"""The same limit for short runs."""
_SHORT_RUN: Final = 8
"""Maximum size in bytes of a short run: contiguous bytes of a part. aten copies short runs slowly."""

_LIBRARY: Final = torch.library.Library("splitops", "DEF")
_LIBRARY.define(
    "split_copy(Tensor data, SymInt[] sizes, int axis, bool squeeze) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_LIBRARY.define(
    "split_into(Tensor data, SymInt[] offsets, SymInt[] sizes, int axis, Tensor(a!)[] out) -> ()",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def split_copy(
    data: torch.Tensor, sizes: Sequence[int], axis: int, squeeze: bool
) -> tuple[torch.Tensor, ...]:
    """Return the parts of a tensor as new contiguous tensors.

    ``axis`` is not negative, and the sizes sum to its size. With ``squeeze``, all parts have size 1 and lose
    the axis.
    """
    # Compilers can fuse and differentiate operators of aten, and exported graphs must run without splitops.
    if torch.compiler.is_compiling():
        parts = torch.split_with_sizes_copy(data, sizes, axis)
        return tuple(part.squeeze(axis) for part in parts) if squeeze else tuple(parts)
    if is_traceable_wrapper_subclass(data):  # it may support only operators of aten
        views = data.unbind(axis) if squeeze else torch.split_with_sizes(data, sizes, axis)
        return tuple(view.clone(memory_format=torch.contiguous_format) for view in views)
    if (
        (data.is_cpu and _is_small(data, sizes, axis))
        or torch._C._are_functorch_transforms_active()  # torch.func ignores registered autograd formulas
        or torch.autograd.forward_ad._current_level >= 0  # and these do not support tangents
    ):
        return tuple(_copy_anywhere(data, sizes, axis, squeeze))
    if type(data) is torch.Tensor and _needs_cpu_kernel_only(data):
        return tuple(_copy_on_cpu(data, sizes, axis, squeeze))
    return tuple(torch.ops.splitops.split_copy.default(data, sizes, axis, squeeze))


def split_into(
    data: torch.Tensor, offsets: Sequence[int], sizes: Sequence[int], axis: int, out: Tensors
) -> None:
    """Copy the parts of a tensor into buffers of their shapes, dtype and device.

    Raises:
        ArrayError: a buffer overlaps the data or another one, or may overlap itself. Nothing is written then.
            Tensors of wrapper subclasses are not checked, nor is a call that torch exports, traces or
            functionalises.
    """
    wrapped, compiling = is_traceable_wrapper_subclass(data), torch.compiler.is_compiling()
    if compiling and not wrapped and not torch.compiler.is_exporting():
        torch.ops.splitops.split_into.default(data, offsets, sizes, axis, list(out))
        return
    if (
        compiling
        or wrapped
        or torch.jit.is_tracing()  # torch.jit.trace does not trace writes of a custom operator,
        or torch._is_functional_tensor(data)  # nor does torch.func.functionalize
    ):
        _copy_each(data, offsets, sizes, axis, out)
        return
    if (
        type(data) is torch.Tensor
        and _needs_cpu_kernel_only(data)
        and all(type(buffer) is torch.Tensor and torch._C._dispatch_keys(buffer) == _CPU for buffer in out)
    ):
        _fill_on_cpu(data, offsets, sizes, axis, out)
        return
    lazy = any(tensor.is_conj() or tensor.is_neg() for tensor in (data, *out))
    if lazy:  # the dispatcher does not resolve these in a list of outputs
        _fill_anywhere(data, offsets, sizes, axis, out)
        return
    torch.ops.splitops.split_into.default(data, offsets, sizes, axis, list(out))


def _is_small(data: torch.Tensor, sizes: Sequence[int], axis: int) -> bool:
    """Return whether aten copies the parts of a CPU tensor at least as fast as the native core.

    Also return True if the size is traced.
    """
    elements = data.numel()
    if not isinstance(elements, int):  # a traced size: the graph must not depend on it
        return True
    count = elements * data.itemsize
    if count > _SMALL:
        return False
    if count <= _SMALL_RUNS:
        return True
    return bool(max(sizes) * prod(data.shape[axis + 1 :]) * data.itemsize > _SHORT_RUN)


def _needs_cpu_kernel_only(data: torch.Tensor) -> bool:
    """Return whether an operator on a strided tensor would call only CPU kernels.

    That is the case for a CPU tensor if no gradient is requested and no mode, transform or tracer is active.
    Then torch's dispatcher, which costs more than most copies, can be skipped.
    """
    state = torch._C
    if (
        _CPU is None
        or (data.requires_grad and torch.is_grad_enabled())
        or torch.autograd.forward_ad._current_level >= 0
        or state._is_torch_function_mode_enabled()
    ):
        return False
    keys, modes = state._dispatch_keys(data), state._dispatch_tls_local_include_set()
    if modes == _NO_MODE:
        return bool(keys == _CPU)
    return bool(modes == _INFERENCE_MODE and keys in (_CPU, _CPU_INFERENCE))


def _make_key_set(*names: str) -> Any:
    """Return a set of torch's dispatch keys, or None if this version of torch lacks one."""
    try:
        keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, names[0]))
        for name in names[1:]:
            keys = keys.add(getattr(torch._C.DispatchKey, name))
    except (AttributeError, TypeError):
        return None
    return keys


_CPU: Final = _make_key_set("CPU", "ADInplaceOrView", "AutogradCPU", "AutocastCPU")
_CPU_INFERENCE: Final = _make_key_set("CPU", "AutocastCPU")
_NO_MODE: Final = _make_key_set("BackendSelect", "ADInplaceOrView")
_INFERENCE_MODE: Final = _make_key_set("BackendSelect")


def _compute_offsets(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(accumulate(sizes, initial=0))[:-1]


def _copy_on_cpu(data: torch.Tensor, sizes: Sequence[int], axis: int, squeeze: bool) -> list[torch.Tensor]:
    parts = native.Plan(tuple(data.shape), axis, _compute_offsets(sizes), sizes, squeeze).copies(
        to_numpy(data)
    )
    return [from_numpy(part, data.dtype) for part in parts]


def _fill_on_cpu(
    data: torch.Tensor, offsets: Sequence[int], sizes: Sequence[int], axis: int, out: Tensors
) -> None:
    array, buffers = to_numpy(data), [to_numpy(buffer) for buffer in out]
    plan = native.Plan(array.shape, axis, offsets, sizes)
    if plan.fill(array, buffers) is None:
        _check_memory(data, out)
        plan.copies_into(array, buffers)
    _mark_written(out)


def _copy_anywhere(data: torch.Tensor, sizes: Sequence[int], axis: int, squeeze: bool) -> list[torch.Tensor]:
    return list(torch.unbind_copy(data, axis) if squeeze else torch.split_with_sizes_copy(data, sizes, axis))


def _fill_anywhere(
    data: torch.Tensor, offsets: Sequence[int], sizes: Sequence[int], axis: int, out: Tensors
) -> None:
    _check_memory(data, out)
    if any(tensor.is_conj() or tensor.is_neg() for tensor in (data, *out)):
        _copy_each(data, offsets, sizes, axis, out)
        return
    covered = data.narrow(axis, 0, offsets[-1] + sizes[-1])
    torch.split_with_sizes_copy(covered, sizes, axis, out=list(out))  # one kernel on CUDA


def _copy_each(
    data: torch.Tensor, offsets: Sequence[int], sizes: Sequence[int], axis: int, out: Tensors
) -> None:
    for buffer, offset, size in zip(out, offsets, sizes, strict=True):
        buffer.copy_(data.narrow(axis, offset, size))


def _compute_part_shape(data: torch.Tensor, size: int, axis: int) -> list[int]:
    return [*data.shape[:axis], size, *data.shape[axis + 1 :]]


def _check_memory(data: torch.Tensor, out: Tensors) -> None:
    check_disjoint(
        make_placeholder(*get_memory_layout(data)),
        [make_placeholder(*get_memory_layout(buffer)) for buffer in out],
    )


def _mark_written(out: Tensors) -> None:
    """Notify autograd that the buffers have changed, as torch's own operators do."""
    torch.autograd.graph.increment_version([buffer for buffer in out if not buffer.is_inference()])


def _new_parts(data: torch.Tensor, sizes: Sequence[int], axis: int, squeeze: bool) -> list[torch.Tensor]:
    shapes = [_compute_part_shape(data, size, axis) for size in sizes]
    return [data.new_empty(shape[:axis] + shape[axis + 1 :] if squeeze else shape) for shape in shapes]


def _skip_fill(*arguments: Any) -> None:
    return None


def _remember_axis(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, ctx.sizes, ctx.axis, ctx.squeeze = inputs
    ctx.set_materialize_grads(False)


def _join_gradients(
    ctx: Any, gradients: list[torch.Tensor | None]
) -> tuple[torch.Tensor | None, None, None, None]:
    """Join the gradients of the parts. None counts as zeros, but if all are None, so is the result."""
    given = next((gradient for gradient in gradients if gradient is not None), None)
    if given is None:
        return None, None, None, None
    if ctx.squeeze:
        whole = [torch.zeros_like(given) if gradient is None else gradient for gradient in gradients]
        return torch.stack(whole, ctx.axis), None, None, None
    whole = [
        given.new_zeros(_compute_part_shape(given, size, ctx.axis)) if gradient is None else gradient
        for gradient, size in zip(gradients, ctx.sizes, strict=True)
    ]
    return torch.cat(whole, ctx.axis), None, None, None


def _copy_batch(
    info: Any, in_dims: tuple[int | None, ...], data: torch.Tensor, sizes: list[int], axis: int, squeeze: bool
) -> tuple[list[torch.Tensor], list[int]]:
    batch = in_dims[0]
    assert batch is not None
    parts = torch.ops.splitops.split_copy.default(data.movedim(batch, 0), sizes, axis + 1, squeeze)
    return parts, [0] * len(sizes)


def _fill_batch(
    info: Any,
    in_dims: tuple[Any, ...],
    data: torch.Tensor,
    offsets: list[int],
    sizes: list[int],
    axis: int,
    out: list[torch.Tensor],
) -> tuple[None, None]:
    batch, _, _, _, batches = in_dims
    if any(dim is None for dim in batches):
        raise ArrayError(
            "buffers in out= must be batched under torch.vmap, like data: create them inside the mapped "
            "function"
        )
    rows = data.expand(info.batch_size, *data.shape) if batch is None else data.movedim(batch, 0)
    buffers = [buffer.movedim(dim, 0) for buffer, dim in zip(out, batches, strict=True)]
    torch.ops.splitops.split_into.default(rows, offsets, sizes, axis + 1, buffers)
    return None, None


_LIBRARY.impl("split_copy", _copy_on_cpu, "CPU")
_LIBRARY.impl("split_copy", _copy_anywhere, "CompositeExplicitAutograd")
_LIBRARY.impl("split_into", _fill_on_cpu, "CPU")
_LIBRARY.impl("split_into", _fill_anywhere, "CompositeExplicitAutograd")
torch.library.register_fake("splitops::split_copy", _new_parts, lib=_LIBRARY)
torch.library.register_fake("splitops::split_into", _skip_fill, lib=_LIBRARY)
torch.library.register_autograd(
    "splitops::split_copy", _join_gradients, setup_context=_remember_axis, lib=_LIBRARY
)
torch.library.register_vmap("splitops::split_copy", _copy_batch, lib=_LIBRARY)
torch.library.register_vmap("splitops::split_into", _fill_batch, lib=_LIBRARY)
