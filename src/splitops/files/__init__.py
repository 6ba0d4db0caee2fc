"""Tensor files of any size: open them lazily, split and merge them with bounded memory.

A split of a file is a split of the array in it, with the same operators, size rules and errors. A merge is
the inverse: it restores the bytes of the original tensor from all parts of a split.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from splitops.calls.arguments import bind_call
from splitops.errors import FileError
from splitops.files.dask_source import DaskArray, is_dask_array, plan_dask_split
from splitops.files.folders import stem_of
from splitops.files.formats import Contents, Format, get_format, to_format
from splitops.files.indexing import plan_index
from splitops.files.lazy import LazyTensor, TensorFile, open
from splitops.files.max_size import plan_by_size, plan_one_file
from splitops.files.plan import FilePlan
from splitops.files.plan_builder import AnyPath, plan_tensor_merge, plan_tensor_split, read
from splitops.files.plan_types import DryRun, Part, Progress, Report, RunOptions
from splitops.files.streams import strip_compression
from splitops.files.tensors import StoredTensor
from splitops.native import Plan
from splitops.spec.elements.types import ElementType
from splitops.spec.operators import schema
from splitops.splitting.binding import Fact
from splitops.splitting.planning import plan_request

__all__ = [
    "Contents",
    "DryRun",
    "FilePlan",
    "Format",
    "LazyTensor",
    "Part",
    "Progress",
    "Report",
    "RunOptions",
    "StoredTensor",
    "TensorFile",
    "get_format",
    "merge",
    "open",
    "plan_by_size",
    "plan_index",
    "plan_merge",
    "plan_one_file",
    "plan_split",
    "split",
]


def plan_split(
    source: AnyPath | DaskArray,
    out: AnyPath,
    operator: str = "Split",
    *,
    tensor: str | None = None,
    prefix: str | None = None,
    keep_other_tensors: bool = False,
    like: Format | str | None = None,
    to: Format | str | None = None,
    opset: int | None = None,
    domain: str | None = None,
    **arguments: Any,
) -> FilePlan:
    """Plan to split a tensor in a file into one file per part, without writing anything.

    Args:
        source: path or URL of the file, which may be compressed, such as ``x.npy.gz``. It may also be a Dask
            array, whose parts are computed chunk by chunk and written as zarr.
        out: path or URL of the folder for the parts, such as ``s3://bucket/parts``. It is created if it does
            not exist.
        operator: ``"Split"``, ``"SplitToSequence"`` or ``"VariadicSplit"``.
        tensor: name of the tensor; None if the file has only one.
        prefix: start of the file names of the parts; None for the stem of the source file's name, or ``part``
            for a Dask array.
        keep_other_tensors: whether the file of each part also gets the other tensors of the source.
        like: format of the source; None to infer it from the file name.
        to: format of the parts, such as ``"safetensors"``; None for the format of the source.
        opset: opset that selects the operator version; None for the newest.
        domain: ``""`` for ONNX or ``"openvino"``; None for the first of these that has the operator.
        **arguments: arguments of the operator's function, such as ``axis``, ``split`` and ``num_outputs``.

    Returns:
        The plan. ``dry_run()`` describes what ``run()`` would do.

    Raises:
        FileError: the file is missing or malformed, or does not have the tensor.
        RuleError: a rule of the operator is broken, as in the operator's function.

    Examples:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> np.save(folder / "x.npy", np.zeros((4, 6)))
        >>> plan_split(folder / "x.npy", folder, axis=1, split=[2, 5])
        Traceback (most recent call last):
        ...
        splitops.errors.LengthsError: Split-18 [lengths.sum]: split = [2, 5] sums to 7, but axis 1 of \
data (4, 6) has size 6
    """

    def bind(shape: tuple[int, ...], element_type: ElementType | None) -> Plan:
        op_schema = schema(operator, opset, domain)
        return plan_request(bind_call(op_schema, Fact(element_type, shape), arguments).request())

    if is_dask_array(source):
        if tensor is not None or keep_other_tensors or like is not None:
            raise FileError(
                "tensor=, keep_other_tensors= and like= are for files, not for a Dask array: leave them out"
            )
        return plan_dask_split(source, Path(out), bind, prefix=prefix, to=to_format(to))
    contents = read(source, to_format(like))
    return plan_tensor_split(
        contents,
        Path(out),
        bind,
        tensor=tensor,
        prefix=stem_of(strip_compression(source)) if prefix is None else prefix,
        keep_other_tensors=keep_other_tensors,
        to=to_format(to),
    )


def split(source: AnyPath | DaskArray, out: AnyPath, operator: str = "Split", **arguments: Any) -> Report:
    """Split a tensor in a file into one file per part.

    In a local folder, either all files are written completely, or none is; see :meth:`FilePlan.run`.

    Args:
        source: as in :func:`plan_split`.
        out: as in :func:`plan_split`.
        operator: as in :func:`plan_split`.
        **arguments: other arguments of :func:`plan_split`, and options of :meth:`FilePlan.run`.

    Returns:
        The report, with the files that were written.

    Raises:
        FileError: as in :func:`plan_split` and :meth:`FilePlan.run`.
        RuleError: as in :func:`plan_split`.

    Examples:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> np.save(folder / "x.npy", np.arange(5))
        >>> [path.name for path, _ in split(folder / "x.npy", folder, "SplitToSequence", split=2).files]
        ['x.0.npy', 'x.1.npy', 'x.2.npy']
    """
    options = {name: arguments.pop(name) for name in RunOptions.__annotations__ if name in arguments}
    return plan_split(source, out, operator, **arguments).run(**options)


def plan_merge(
    sources: Sequence[AnyPath],
    out: AnyPath,
    *,
    axis: int = 0,
    tensor: str | None = None,
    like: Format | str | None = None,
    to: Format | str | None = None,
) -> FilePlan:
    """Plan to merge a tensor in several files into one file, without writing anything.

    Args:
        sources: paths or URLs of the files, in the order of the parts.
        out: path or URL of the file to write.
        axis: axis along which to concatenate the parts.
        tensor: name of the tensor; None if each file has only one. Other tensors are copied from the first
            file.
        like: format of the files; None to infer it from their names.
        to: format of the new file; None to infer it from its name.

    Returns:
        The plan. ``dry_run()`` describes what ``run()`` would do.

    Raises:
        FileError: a file is missing or malformed, the files do not match, or the format of the new file is
            unknown.
    """
    contents = [read(source, to_format(like)) for source in sources]
    return plan_tensor_merge(contents, Path(out), axis=axis, tensor=tensor, to=to_format(to))


def merge(sources: Sequence[AnyPath], out: AnyPath, **arguments: Any) -> Report:
    """Merge a tensor in several files into one file. It is written completely or not at all.

    Args:
        sources: the files, in the order of the parts.
        out: the file to write.
        **arguments: other arguments of :func:`plan_merge`, and options of :meth:`FilePlan.run`.

    Returns:
        The report, with the file that was written.

    Raises:
        FileError: as in :func:`plan_merge` and :meth:`FilePlan.run`.

    Examples:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> np.save(folder / "x.npy", np.arange(12).reshape(3, 4))
        >>> parts = [path for path, _ in split(folder / "x.npy", folder, axis=1, split=[1, 3]).files]
        >>> report = merge(parts, folder / "y.npy", axis=1)
        >>> (folder / "y.npy").read_bytes() == (folder / "x.npy").read_bytes()
        True
    """
    options = {name: arguments.pop(name) for name in RunOptions.__annotations__ if name in arguments}
    return plan_merge(sources, out, **arguments).run(**options)
