"""Tensor files of any size: opened lazily, split and merged with bounded memory.

Splitting a file is splitting the array in it: the same operators, size rules and errors. Merging is the
inverse: files merged from all parts of a split have the bytes of the original.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from splitops.calls.arguments import bind_call
from splitops.errors import FileError
from splitops.files.computed import DaskArray, array_plan, is_dask_array
from splitops.files.folders import stem_of
from splitops.files.formats import Contents, Format, chosen_format, format_named
from splitops.files.lazy import LazyTensor, TensorFile, open
from splitops.files.planned import DryRun, Part, Progress, Report, RunOptions
from splitops.files.planning import AnyPath, merge_plan, read, split_plan
from splitops.files.plans import FilePlan
from splitops.files.streams import plain_path
from splitops.files.tensors import StoredTensor
from splitops.files.whole import plan_by_size, plan_one_file
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
    "format_named",
    "merge",
    "open",
    "plan_by_size",
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
    keep_others: bool = False,
    like: Format | str | None = None,
    to: Format | str | None = None,
    opset: int | None = None,
    domain: str | None = None,
    **arguments: Any,
) -> FilePlan:
    """Plan the split of a tensor in a file into a file a part; nothing is written.

    Args:
        source: the file, or its address; one such as ``x.npy.gz`` is decompressed. Or a Dask array, whose
            parts are computed a chunk at a time and written as zarr.
        out: the folder of the parts, made if it is not there, or its address, such as ``s3://bucket/parts``.
        operator: ``"Split"``, ``"SplitToSequence"`` or ``"VariadicSplit"``.
        tensor: the name of the tensor; None where the file has one only.
        prefix: what the names of the parts begin with; None is the name of the file, ``part`` of an array.
        keep_others: whether every part gets the file's other tensors, too.
        like: the format of the file; None goes by its name.
        to: the format of the parts, such as ``"safetensors"``; None is that of the file.
        opset: the opset that selects the operator's version; None is the newest.
        domain: ``""`` for ONNX, ``"openvino"``; None is the first of them that has the operator.
        **arguments: those of the operator's function, for example ``axis``, ``split``, ``num_outputs``.

    Returns:
        The plan: ``dry_run()`` says what it would do, ``run()`` does it.

    Raises:
        FileError: the file is missing or malformed, or has no such tensor.
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
        row = schema(operator, opset, domain)
        return plan_request(bind_call(row, Fact(element_type, shape), arguments).request())

    if is_dask_array(source):
        if tensor is not None or keep_others or like is not None:
            raise FileError("a Dask array is one array: tensor=, keep_others= and like= are of files")
        return array_plan(source, Path(out), bind, prefix=prefix, to=chosen_format(to))
    contents = read(source, chosen_format(like))
    return split_plan(
        contents,
        Path(out),
        bind,
        tensor=tensor,
        prefix=stem_of(plain_path(source)) if prefix is None else prefix,
        keep_others=keep_others,
        to=chosen_format(to),
    )


def split(source: AnyPath | DaskArray, out: AnyPath, operator: str = "Split", **arguments: Any) -> Report:
    """Split a tensor in a file into a file a part: all of them appear whole, or none.

    Args:
        source: as in :func:`plan_split`.
        out: as in :func:`plan_split`.
        operator: as in :func:`plan_split`.
        **arguments: what else :func:`plan_split` takes, and the options of :meth:`FilePlan.run`.

    Returns:
        The files that were written.

    Raises:
        FileError: as :func:`plan_split` and :meth:`FilePlan.run`.
        RuleError: as :func:`plan_split`.

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
    """Plan the merge of a tensor in several files into one file; nothing is written.

    Args:
        sources: the files, in the order of the parts.
        out: the file to write, or its address.
        axis: the axis along which the parts lie.
        tensor: the name of the tensor; None where the files have one only. Other tensors of the files are
            taken from the first.
        like: the format of the files; None goes by their names.
        to: the format of the new file; None goes by its name.

    Returns:
        The plan: ``dry_run()`` says what it would do, ``run()`` does it.

    Raises:
        FileError: a file is missing or malformed, they do not fit together, or nothing says the format of the
            new file.
    """
    contents = [read(source, chosen_format(like)) for source in sources]
    return merge_plan(contents, Path(out), axis=axis, tensor=tensor, to=chosen_format(to))


def merge(sources: Sequence[AnyPath], out: AnyPath, **arguments: Any) -> Report:
    """Merge a tensor in several files into one file, which appears whole or not at all.

    Args:
        sources: the files, in the order of the parts.
        out: the file to write.
        **arguments: what else :func:`plan_merge` takes, and the options of :meth:`FilePlan.run`.

    Returns:
        The file that was written.

    Raises:
        FileError: as :func:`plan_merge` and :meth:`FilePlan.run`.

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
