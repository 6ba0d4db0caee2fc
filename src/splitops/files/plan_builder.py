"""Plan splits and merges of tensors in files: choose the targets, their layouts and the extents."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Final

from splitops.common.untrusted_files import DataFolder
from splitops.errors import FileError, TypeUnsupportedError, shown, shown_path
from splitops.files.chunk_tasks import ChunkedFormat, SourceSpan, TensorAssembly, chunk_bytes
from splitops.files.chunks import ChunkCopies, Compute
from splitops.files.extent_tasks import ExtentCopies
from splitops.files.extents import Extent, Extents, extents_from_ranges, merge_adjacent
from splitops.files.folders import INDEX, SidecarFile
from splitops.files.formats import (
    Contents,
    Format,
    Layout,
    TargetFile,
    choose_format,
    detect_format,
    has_format,
)
from splitops.files.plan import FilePlan
from splitops.files.plan_types import Finish, Part
from splitops.files.sources import LocalFile, LocalFolder, Source
from splitops.files.strays import warn_of_leftovers
from splitops.files.streams import is_compressed, open_decompressed, strip_compression
from splitops.files.tensors import StoredTensor, locate_tensors, make_part_extents, pause_gc
from splitops.files.urls import RemoteFile, is_url, resolve_target
from splitops.native import Plan, SplitPlan
from splitops.spec.elements.types import ElementType
from splitops.spec.operators import schema
from splitops.spec.sizes.dims import require_integer

Bind = Callable[[tuple[int, ...], ElementType | None], Plan]
"""Binds the arguments of an operator to a shape and an element type. Raises the errors of the operator."""

_BY_RANGES: Final = ("npy", "npz", "safetensors", "gguf", "raw")
"""Formats that can be read from a URL, because they need only byte ranges of the file."""
_FORWARDS: Final = ("npy", "safetensors", "raw")
"""Formats that can be read from start to end, and therefore from compressed files."""
_NAMELESS: Final = "data"
_MAX_FILES: Final = 100_000

AnyPath = str | os.PathLike[str]


@pause_gc()
def read(
    path: AnyPath, like: Format | None = None, *, folder: DataFolder | None = None, allow_links: bool = False
) -> Contents:
    """Read the names, types and places of the tensors in a file, without their bytes.

    Args:
        path: the file, or its name in ``folder``.
        like: its format; None to infer it from the file name.
        folder: the folder in which it was found. Links may lead out of it only if the folder allows that.
        allow_links: whether links to files that it refers to may lead out of its folder. Ignored with
            ``folder``.

    Raises:
        FileError: the file is missing or malformed, or its format is unknown.
    """
    form = like or detect_format(strip_compression(Path(path)))
    source = open_source(path, form, folder, allow_links=allow_links)
    return form.read(open_decompressed(source) if is_compressed(path) else source)


def open_source(
    path: AnyPath, form: Format, folder: DataFolder | None = None, *, allow_links: bool = False
) -> Source:
    """Open a file as in :func:`read`. Raise FileError if ``form`` does not support URLs or compression."""
    given = Path(path)
    if is_url(path) and form.name not in _BY_RANGES:
        raise FileError(
            f"{given.name}: {form.name} files cannot be read from a URL; only {', '.join(_BY_RANGES)} can. "
            "Download the file first"
        )
    if is_compressed(path) and form.name not in _FORWARDS:
        raise FileError(
            f"{given.name}: compressed {form.name} files cannot be read; only {', '.join(_FORWARDS)} can. "
            "Decompress the file first"
        )
    if is_url(path):
        return RemoteFile(path)
    if folder is None and form.name == "zarr" and given.is_dir():
        return LocalFolder(given)
    return LocalFile(given, folder, allow_links=allow_links)


@dataclass
class Targets:
    """Collects the target files of a plan and the copies into them."""

    files: list[TargetFile]
    extents: list[Extents]
    finishes: list[Finish]

    def add(self, layout: Layout) -> int:
        """Add the files of a layout and return the index of the first."""
        first = len(self.files)
        self.files += layout.files
        if layout.finish is not None:
            targets = range(first, len(self.files))
            self.finishes.append(Finish(targets, layout.finish, layout.check))
        return first

    def plan(
        self,
        name: str,
        folder: Path,
        sources: Sequence[Source],
        tensors: Sequence[StoredTensor],
        parts: Sequence[Part],
        others: Sequence[SidecarFile] = (),
    ) -> FilePlan:
        """Make the plan that writes these files and copies the small files ``others`` next to them."""
        for number, other in enumerate(others, len(sources)):
            self.extents.append(extents_from_ranges([(number, 0, other.source.size)], [(len(self.files), 0)]))
            self.files.append(TargetFile(other.name, other.source.size, copied=other.source.name))
        return FilePlan(
            name,
            folder,
            (*sources, *(other.source for other in others)),
            tuple(tensors),
            tuple(self.files),
            ExtentCopies(merge_adjacent(Extents.concatenate(self.extents))),
            tuple(parts),
            tuple(self.finishes),
        )


@pause_gc()
def plan_tensor_split(
    contents: Contents,
    folder: Path,
    bind: Bind,
    *,
    tensor: str | None,
    element_type: ElementType | None = None,
    prefix: str,
    keep_other_tensors: bool,
    to: Format | None = None,
) -> FilePlan:
    """Plan a split, as :func:`splitops.files.plan_split` does, for contents that are already open.

    ``element_type`` is the type of elements that the file declares only as bytes or unsigned integers.
    """
    folder = resolve_target(folder)
    stored = contents.get_tensor(tensor)
    plan = _bind(bind, stored, _check_element_type(stored, element_type, contents) or stored.element_type)
    count, to = len(plan.sizes), to or contents.format
    suffix = _find_suffix(contents) if to is contents.format else to.suffixes[0]
    names, pattern = name_parts(prefix, count, suffix), rf"{re.escape(prefix)}\.\d+{re.escape(suffix)}"
    others = [other for other in contents.tensors if other is not stored] if keep_other_tensors else []
    if to is contents.format and _can_copy_chunks([(contents, each) for each in (stored, *others)]):
        made = _split_by_chunks(contents, stored, others, plan, folder, prefix, names)
        return warn_of_leftovers(made, pattern)
    extents = {
        extent.target: extent for extent in make_part_extents(stored, plan, [(i, 0) for i in range(count)])
    }
    targets = Targets([], [], [])
    parts = []
    tensors = list(contents.tensors) if others else [stored]
    [own] = [index for index, each in enumerate(tensors) if each is stored]
    whole = locate_tensors(tensors)
    whole[own] = 0  # an empty range, because its parts have extents
    moved: list[Extent] = []
    layout: Layout | None = None
    before: tuple[int, ...] = ()
    for index, shape in enumerate(plan.shapes):
        extent = extents.get(index)
        tensors[own] = stored._replace(shape=shape, size=extent.bytes if extent else 0)
        name = names[index]
        if layout is not None and shape == before and layout.finish is None and len(layout.files) == 1:
            file = layout.files[0]  # equal shapes have equal headers
            layout = Layout((TargetFile(name, file.size, file.literals),), layout.places)
        else:
            layout, before = to.lay_out(adapt(tensors, contents, to), contents, name), shape
        first = targets.add(layout)
        target, at = layout.places[own].tolist()
        if extent is not None:
            moved.append(extent._replace(target=first + target, target_offset=at))
        if others:
            targets.extents.append(extents_from_ranges(whole, layout.places, first))
        parts.append(Part(folder / name, stored.name, plan.offsets[index], plan.sizes[index], shape))
    targets.extents.append(Extents.from_extents(moved))
    made = targets.plan(prefix, folder, contents.sources, contents.tensors, parts)
    return warn_of_leftovers(made, pattern)


def name_parts(prefix: str, count: int, suffix: str) -> list[str]:
    """Return the file names of ``count`` parts. Raise FileError if there are too many.

    Examples:
        >>> name_parts("x", 11, ".npy")[9:]
        ['x.09.npy', 'x.10.npy']
    """
    if count > _MAX_FILES:
        raise FileError(f"{count} parts need {count} files; the limit is {_MAX_FILES}")
    digits = len(str(max(0, count - 1)))
    return [f"{prefix}.{index:0{digits}}{suffix}" for index in range(count)]


def _bind(bind: Bind, stored: StoredTensor, element_type: ElementType | None) -> Plan:
    """Bind the operator to a tensor. An error about the type suggests OpenVINO if that supports the type."""
    try:
        return bind(stored.shape, element_type)
    except TypeUnsupportedError as error:
        other = schema("Split", domain="openvino")
        if element_type not in other.types_of(other.inputs[0]):
            raise
        expected = (
            f"{error.expected}; OpenVINO's operators take {element_type}: --op openvino:Split-1, or "
            "openvino:VariadicSplit-1 for sizes (in Python domain='openvino')"
        )
        raise TypeUnsupportedError(
            error.operator, error.rule, error.got, expected, error.values, error.where
        ) from error


def plan_chunks(
    name: str,
    folder: Path,
    targets: Sequence[str],
    parts: Sequence[Part],
    assemblies: Sequence[TensorAssembly],
    format_: Format,
    *,
    files: Sequence[Contents] = (),
    compute: Compute | None = None,
) -> FilePlan:
    """Make the plan that writes tensors chunk by chunk, from ``files`` or as computed by ``compute``."""
    made = ChunkCopies(
        tuple(assemblies),
        _cast_format(format_),
        tuple(shown_path(folder / target) for target in targets),
        tuple(_cast_format(contents.format) for contents in files),
        files[0] if files else None,
        compute,
    )
    folders = made.format.folders
    return FilePlan(
        name,
        folder,
        tuple(contents.sources[0] for contents in files),
        (),
        tuple(TargetFile(target, 0, folder=folders) for target in targets),
        made,
        tuple(parts),
    )


def _split_by_chunks(
    contents: Contents,
    stored: StoredTensor,
    others: Sequence[StoredTensor],
    plan: Plan,
    folder: Path,
    prefix: str,
    names: Sequence[str],
) -> FilePlan:
    axis, parts, assemblies = plan.axis, [], []
    format_ = _cast_format(contents.format)
    for index, (offset, size, shape) in enumerate(zip(plan.offsets, plan.sizes, plan.shapes, strict=True)):
        part = stored._replace(shape=shape, size=math.prod(shape) * stored.unit.bytes)
        part = part._replace(chunks=format_.choose_chunks(part, contents, offset))
        assemblies.append(
            TensorAssembly(index, part, axis, (SourceSpan(0, offset, 0, size),), chunk_bytes(stored))
        )
        assemblies += [_copy_tensor(other, index) for other in others]
        parts.append(Part(folder / names[index], stored.name, offset, size, shape))
    return plan_chunks(prefix, folder, names, parts, assemblies, format_, files=[contents])


def _merge_by_chunks(
    files: Sequence[Contents], path: Path, stored: StoredTensor, whole: StoredTensor, plan: SplitPlan
) -> FilePlan:
    format_, like = _cast_format(files[0].format), files[0]
    spans = zip(range(len(files)), plan.offsets, plan.sizes, strict=True)
    whole = whole._replace(chunks=format_.choose_chunks(whole, like, 0))
    read_bytes = max(chunk_bytes(contents.get_tensor(stored.name)) for contents in files)
    assembly = TensorAssembly(
        0, whole, plan.axis, tuple(SourceSpan(i, 0, offset, size) for i, offset, size in spans), read_bytes
    )
    assemblies = [assembly, *(_copy_tensor(other, 0) for other in like.tensors if other is not stored)]
    part = Part(path, whole.name, 0, whole.shape[plan.axis], whole.shape)
    return plan_chunks(path.name, path.parent, [path.name], [part], assemblies, format_, files=files)


def _can_copy_chunks(taken: Sequence[tuple[Contents, StoredTensor]]) -> bool:
    """Return whether to copy tensors chunk by chunk: all have chunks, and some are not plain byte ranges."""
    return all(tensor.chunks is not None for _, tensor in taken) and any(
        contents.sources[tensor.file].find_local() is None for contents, tensor in taken
    )


def _cast_format(format_: Format) -> ChunkedFormat:
    assert isinstance(format_, ChunkedFormat)
    return format_


def _copy_tensor(tensor: StoredTensor, target: int) -> TensorAssembly:
    return TensorAssembly(
        target, tensor, 0, (SourceSpan(0, 0, 0, tensor.shape[0] if tensor.shape else 1),), 0
    )


def _check_element_type(
    tensor: StoredTensor, stated: ElementType | None, contents: Contents
) -> ElementType | None:
    """Return the requested type ``stated``. Raise FileError if the tensor cannot be read as that type."""
    if stated is None:
        return None
    raw = tensor.dtype is not None and tensor.dtype.kind in "Vu"
    if tensor.element_type is not stated and not (
        raw and stated.bits == 8 * tensor.unit.bytes and tensor.unit.elements == 1
    ):
        file = contents.sources[0].name
        raise FileError(f"{file}: {tensor.label} has type {tensor.code}, which cannot be read as {stated}")
    return stated


def adapt(tensors: Sequence[StoredTensor], contents: Contents, to: Format) -> list[StoredTensor]:
    """Describe tensors of ``contents`` as the format ``to`` stores them.

    A tensor without a name is named ``data`` if ``to`` is another format than before.
    """
    if to is contents.format:
        return list(tensors)
    if len({tensor.name or _NAMELESS for tensor in tensors}) != len(tensors):
        file = contents.sources[0].name
        raise FileError(
            f"{file} has a tensor without a name, which cannot be named {shown(_NAMELESS)}, because another "
            "tensor has that name"
        )
    return [to.adapt(tensor._replace(name=tensor.name or _NAMELESS)) for tensor in tensors]


def _find_suffix(contents: Contents) -> str:
    name = strip_compression(contents.sources[0].path).name.removesuffix(INDEX) or contents.format.suffixes[0]
    known = next((s for s in contents.format.suffixes if name.lower().endswith(s)), None)
    if known is not None:
        return name[-len(known) :]
    ending = Path(name).suffix
    return contents.format.suffixes[0] if not ending or has_format(Path(name)) else ending


@pause_gc()
def plan_tensor_merge(
    files: Sequence[Contents], path: Path, *, axis: int, tensor: str | None, to: Format | None = None
) -> FilePlan:
    """Plan a merge, as :func:`splitops.files.plan_merge` does, for files that are already open."""
    if not files:
        raise FileError("no files to merge")
    if is_compressed(path):
        raise FileError(f"{shown(path.name)}: compressed files cannot be written. Leave out {path.suffix}")
    path = resolve_target(path)
    stored = [contents.get_tensor(tensor) for contents in files]
    whole, plan = _merge_tensors(files, stored, axis)
    like = files[0]
    _check_other_tensors(files, stored)
    tensors = [whole if each is stored[0] else each for each in like.tensors]
    to = choose_format(path, to, like.format)
    used = [*zip(files, stored, strict=True), *((like, each) for each in like.tensors)]
    if all(contents.format is to for contents in files) and _can_copy_chunks(used):
        return _merge_by_chunks(files, path, stored[0], whole, plan)
    layout = to.lay_out(adapt(tensors, like, to), like, path.name)
    targets = Targets([], [], [])
    targets.add(layout)
    sources: list[Source] = []
    read_tensors: list[StoredTensor] = []
    places: list[tuple[int, int]] = []
    for contents, part in zip(files, stored, strict=True):
        first = len(sources)
        sources += contents.sources
        read_tensors += [each._replace(file=first + each.file) for each in contents.tensors]
        places.append((first + part.file, part.offset))
    [at] = [index for index, each in enumerate(tensors) if each is whole]
    file, offset = layout.places[at].tolist()
    merged = make_part_extents(whole._replace(file=file, offset=offset), plan, places)
    targets.extents.append(Extents.from_extents(merged).invert())
    others = locate_tensors(tensors)
    others[at] = 0  # an empty range, because the parts have extents
    targets.extents.append(extents_from_ranges(others, layout.places))
    made = Part(path, whole.name, 0, whole.shape[plan.axis], whole.shape)
    return targets.plan(path.name, path.parent, sources, read_tensors, [made])


def _merge_tensors(
    files: Sequence[Contents], stored: Sequence[StoredTensor], axis: int
) -> tuple[StoredTensor, SplitPlan]:
    """Concatenate parts along ``axis``. Return the tensor, and the plan that splits it into the parts."""
    first = stored[0]
    rank, axis = len(first.shape), require_integer(axis, "axis", FileError)
    if not -rank <= axis < rank:
        file = files[0].sources[0].name
        raise FileError(f"axis {axis} is out of range for {first.label} in {file}, which has rank {rank}")
    axis %= rank
    for contents, part in zip(files, stored, strict=True):
        name = contents.sources[0].name
        if part.code != first.code:
            raise FileError(
                f"{part.label} in {name} has type {part.code}, but the first part has {first.code}"
            )
        if _drop_axis(part.shape, axis) != _drop_axis(first.shape, axis) or len(part.shape) != rank:
            raise FileError(
                f"{part.label} in {name} has shape {shown(part.shape)}, but the first part has "
                f"{shown(first.shape)}: they may differ along axis {axis} only"
            )
    orders = {part.fortran for part in stored if not part.both_orders}
    if len(orders) > 1:
        other = next(c for c, p in zip(files, stored, strict=True) if not p.both_orders and p.fortran)
        raise FileError(
            f"{other.sources[0].name} is in Fortran order, but other parts are not: convert them to one order"
        )
    sizes = tuple(part.shape[axis] for part in stored)
    shape = (*first.shape[:axis], sum(sizes), *first.shape[axis + 1 :])
    if shape[axis] >= 1 << 63:
        raise FileError(f"the merged size along axis {axis} would be {shape[axis]}, which exceeds 63 bits")
    whole = first._replace(
        shape=shape,
        size=sum(part.size for part in stored),
        fortran=orders.pop() if orders else all(part.fortran for part in stored),
    )
    return whole, Plan(shape, axis, tuple(accumulate(sizes, initial=0))[:-1], sizes)


def _check_other_tensors(files: Sequence[Contents], stored: Sequence[StoredTensor]) -> None:
    """Reject other tensors unless the first file, which they are copied from, has them in the same form."""
    first = {each.name: (each.shape, each.code) for each in files[0].tensors if each is not stored[0]}
    for contents, part in zip(files[1:], stored[1:], strict=True):
        for each in contents.tensors:
            if each is not part and first.get(each.name) != (each.shape, each.code):
                kind = f"{each.code} of shape {shown(each.shape)}"
                raise FileError(
                    f"{each.label} in {contents.sources[0].name} is {kind}, unlike in the first file: "
                    "merge the files without their other tensors"
                )


def _drop_axis(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])
