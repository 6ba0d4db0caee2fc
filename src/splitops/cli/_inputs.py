"""``--input NAME=VALUE``: reads or generates the input arrays of a model."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
import numpy.typing as npt

from splitops.cli._console import escape
from splitops.cli._generate import get_max_bytes, make_ramp, make_random
from splitops.cli._operators import find_element_type, read_shape
from splitops.cli._paths import add_path, describe_missing, is_missing
from splitops.common.untrusted_files import open_regular, read_bounded
from splitops.errors import ModelError, Where, shown, shown_path
from splitops.files.formats.npy import Header, map_array, read_array
from splitops.models.running.input_specs import InputSpec

_GENERATORS: Final = ("ramp", "random")
_MAX_PROTOBUF: Final = (1 << 31) - 1


def read_inputs(texts: Sequence[str], declared: Sequence[InputSpec]) -> dict[str, Any]:
    """Read or generate the arrays of ``NAME=VALUE`` texts, and return them, or lists for sequences, by name.

    Unknown and missing names, tensors that are set twice and missing files raise a ``click.UsageError``.
    """
    texts_by_name: dict[str, list[str]] = {}
    known = {name: item for item in declared for name in (*item.aliases, item.name)}
    for text in texts:
        # The longest matching name wins, since names and files may contain "=".
        names = [name for name in known if text.startswith(f"{name}=")]
        if not names:
            name, equals, _ = text.partition("=")
            problem = f"there is no input {shown(name)}" if equals else f"{shown(text)} is not NAME=VALUE"
            raise click.UsageError(f"{problem}. {describe_inputs(declared)}")
        name = max(names, key=len)
        texts_by_name.setdefault(known[name].name, []).append(text[len(name) + 1 :])
    missing = [item for item in declared if item.required and item.name not in texts_by_name]
    if missing:
        names = [escape(item.name, 80) for item in missing]
        raise click.UsageError(f"Missing: {', '.join(names)}. {describe_inputs(declared)}")
    present = [item for item in declared if item.name in texts_by_name]
    return {item.name: _read_input(texts_by_name[item.name], item) for item in present}


def describe_inputs(declared: Sequence[InputSpec]) -> str:
    """Return the inputs of a model with their types, one line each, below a heading."""
    if not declared:
        return "The model has no inputs."
    lines = []
    for item in declared:
        names = "".join(f" (or {escape(alias, 80)})" for alias in item.aliases)
        optional = "" if item.required else ", optional"
        lines.append(f"  {escape(item.name, 80)}{names}: {escape(str(item), 200)}{optional}")
    return "\n".join(["Inputs of the model:", *lines])


def _read_input(texts: list[str], declared: InputSpec) -> Any:
    values = [_read_value(text, declared) for text in texts]
    if declared.kind == "sequence":
        # One .pb may contain the whole sequence.
        return values[0] if len(values) == 1 and isinstance(values[0], list) else values
    if len(values) > 1:
        raise click.UsageError(f"Input {escape(declared.name, 80)} is set {len(values)} times.")
    return values[0]


def _read_value(text: str, declared: InputSpec) -> Any:
    if text.split(":")[0] in _GENERATORS:
        return _generate(text, declared)
    lower = text.lower()
    if ".npz:" in lower:
        at = lower.rindex(".npz:") + len(".npz")
        return _read_npz(_check_exists(text[:at]), text[at + 1 :], declared)
    match Path(lower).suffix:
        case ".npy":
            array = map_array(_check_exists(text))
            return array.view(declared.get_dtype(array.dtype))
        case ".pb":
            return _read_protobuf(_check_exists(text), declared)
        case ".npz":
            raise click.UsageError(f"Name one array of {escape(text)}: {escape(text)}:KEY.")
        case _:
            raise click.UsageError(
                f"Input {escape(declared.name, 80)}: {escape(text)} is not FILE.npy, FILE.npz:KEY, "
                "FILE.pb, ramp:SHAPE:TYPE or random:SHAPE:TYPE[:SEED]."
            )


def _check_exists(text: str) -> Path:
    path = Path(text)
    if is_missing(path):
        raise click.BadParameter(describe_missing(path), param_hint="'--input'")
    add_path(path, "--input")
    return path


def _generate(text: str, declared: InputSpec) -> npt.NDArray[Any]:
    kind, *fields = text.split(":")
    form = f"{kind}:SHAPE:TYPE" + (":SEED" if kind == "random" else "")
    if len(fields) > form.count(":"):
        raise click.UsageError(f"{escape(text)} has more fields than {form}.")
    shape = declared.static_shape
    if fields and (fields[0] or len(fields) > 1):
        shape = read_shape(fields[0])
    element_type = find_element_type(fields[1]) if len(fields) > 1 and fields[1] else declared.element_type
    if shape is None or element_type is None:
        raise click.UsageError(_describe_unknown(kind, declared, shape))
    if kind == "ramp":
        return make_ramp(shape, element_type)
    seed = fields[2] if len(fields) > 2 else "0"
    if not (seed.isascii() and seed.isdigit()):
        raise click.UsageError(f"The seed must be a whole number, not {escape(seed)}.")
    return make_random(shape, element_type, int(seed))


def _describe_unknown(kind: str, declared: InputSpec, shape: tuple[int, ...] | None) -> str:
    """Return the message for an input whose shape or type must be set, with an example that sets it."""
    name = escape(declared.name, 80)
    dims = declared.shape
    if shape is None and dims is None:
        left = "its shape"
    elif shape is None and dims is not None:
        sizes = [str(dim) for dim in dims if not isinstance(dim, int)]
        left = f"{'sizes' if len(sizes) > 1 else 'size'} {escape(', '.join(sizes), 80)}"
    else:
        left = "its element type"
    known = shape or [dim if isinstance(dim, int) else 2 for dim in dims or (2, 3)]
    example = f"{kind}:{','.join(map(str, known))}{'' if declared.element_type else ':float32'}"
    return f"Cannot generate {name!r}: the model leaves {left} open. For example: --input {name}={example}"


def _read_npz(path: Path, key: str, declared: InputSpec) -> npt.NDArray[Any]:
    def accept(header: Header) -> None:  # checked first: a small file can inflate to many gigabytes
        declared.accept(declared.get_dtype(header.dtype), header.shape)

    from splitops.files.formats.npz import BROKEN

    name = f"{path}:{key}"
    with open_regular(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                info = _get_member(archive, path, key)
                size = info.file_size
                if size > get_max_bytes():
                    raise ModelError(
                        f"{shown_path(name)} has {size} bytes, too many for the memory of this machine"
                    )
                with archive.open(info) as member:
                    array = read_array(member, name, size, accept)
        except BROKEN as error:
            raise ModelError(f"{shown_path(path)} is a malformed .npz: {escape(str(error))}") from error
    return array.view(declared.get_dtype(array.dtype))


def _get_member(archive: zipfile.ZipFile, path: Path, key: str) -> zipfile.ZipInfo:
    keys = [info.filename.removesuffix(".npy") for info in archive.infolist()]
    twice = [name for name, count in Counter(keys).items() if count > 1]
    if twice:
        raise ModelError(f"{shown_path(path)} has more than one array named {shown(twice[0])}")
    if key not in keys:
        known = ", ".join(escape(name, 80) for name in keys[:20])
        raise ModelError(f"{shown_path(path)} has no array {shown(key)}; it has {known}")
    return archive.infolist()[keys.index(key)]


def _read_protobuf(path: Path, declared: InputSpec) -> Any:
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from onnx import SequenceProto, TensorProto

    from splitops.models.formats.onnx.tensors import read_tensor

    content = read_bounded(path, limit=_MAX_PROTOBUF)
    where = Where(model=str(path))
    sequence = declared.kind == "sequence"
    try:
        message = SequenceProto.FromString(content) if sequence else TensorProto.FromString(content)
    except (DecodeError, RecursionError, MemoryError) as error:
        kind = "SequenceProto" if sequence else "TensorProto"
        raise ModelError(f"the file is not a {kind}: {shown(str(error))}", where) from error
    if isinstance(message, TensorProto):
        return read_tensor(message, where)
    if message.elem_type != SequenceProto.TENSOR:
        raise ModelError("the file is a sequence whose elements are not tensors", where)
    return [read_tensor(tensor, where) for tensor in message.tensor_values]
