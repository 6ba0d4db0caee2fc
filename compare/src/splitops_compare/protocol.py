"""Encodes messages to implementations, and parses responses and reports, which JSON Schemas check."""

from __future__ import annotations

import base64
import binascii
import json
import math
import os
import stat
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy.typing as npt

from splitops.errors import one_line, shown
from splitops.extension import find_problem, parse_json, read_values
from splitops.spec import ELEMENT_TYPES
from splitops_compare.data import Case, CompareError, ComparisonReport, Outcome, Value
from splitops_compare.worker import get_storage_dtype, pack, unpack

MAX_LINE: Final = 64 << 20
"""Maximum size of a message from an implementation in bytes."""
_MAX_TENSOR: Final = 1 << 32
_SCHEMAS: Final = {
    "report": ("report", None),
    "response": ("messages", "response"),
    "list of expectations": ("expected", None),
}
"""Schema of each kind of document: the name of its file, and a definition in it or None for its root."""


class ProtocolError(Exception):
    """An implementation sent something that is not a valid message."""


@cache
def load_schema(name: str) -> Any:
    """Load a JSON Schema: ``"messages"``, ``"report"`` or ``"expected"``."""
    return json.loads((files("splitops_compare") / "schemas" / f"{name}.json").read_bytes())


def check_document(value: Any, kind: str, subject: str = "this is") -> None:
    """Check a value against the schema of a ``kind`` of document, a key of ``_SCHEMAS``.

    Raises:
        CompareError: the value does not fit the schema. The message begins with ``subject``.
    """
    name, definition = _SCHEMAS[kind]
    root = load_schema(name)
    problem = find_problem(value, root if definition is None else root["$defs"][definition], root=root)
    if problem is not None:
        place, text = problem
        at = f" at {one_line(place.lstrip('.'), 100)}" if place else ""
        raise CompareError(f"{subject} not a {kind} of a comparison: it {one_line(text, 300)}{at}")


def parse_report(content: bytes, subject: str = "this is") -> ComparisonReport:
    """Parse the JSON of a report. The message of an error begins with ``subject``."""
    try:
        document = parse_json(content)
    except ValueError as error:
        raise CompareError(f"{subject} not a report of a comparison: it is not JSON: {error}") from error
    check_document(document, "report", subject)
    report: ComparisonReport = read_values(ComparisonReport, document)
    return report


def encode_start(setting: Mapping[str, str]) -> bytes:
    """Encode the message that starts an implementation with a setting."""
    return _encode(message="start", protocol=1, setting=dict(setting))


def encode_request(case: Case, number: int, model: Path, folder: Path) -> bytes:
    """Encode the request to run a case. Large inputs, except strings, are written to files in ``folder``."""
    inputs = {
        name: pack(array, str(folder), f"input-{index}") | {"dtype": case.types[name]}
        for index, (name, array) in enumerate(case.inputs.items())
    }
    paths = {"model": str(model), "folder": str(folder)}
    return _encode(message="request", id=number, inputs=inputs, outputs=list(case.outputs), **paths)


def _encode(**message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


def parse_response(line: bytes) -> dict[str, Any]:
    """Parse a message from an implementation.

    Raises:
        ProtocolError: the message is not JSON, or does not match the schema.
    """
    try:
        message = parse_json(line)
        check_document(message, "response")
    except ValueError as error:
        problem = error.message if isinstance(error, CompareError) else f"it is not JSON: {error}"
        raise ProtocolError(one_line(f"{problem}; it begins {line[:60]!r}", 500)) from error
    return dict(message)


def parse_outcome(response: Mapping[str, Any], folder: Path) -> Outcome:
    """Read the outcome from a response. Large outputs are in files in ``folder``.

    Raises:
        ProtocolError: a tensor is malformed, too large or of the wrong size, or a file is missing or not in
            ``folder``.
    """
    if "model" in response:
        _read_file_size(response["model"], folder)
    values = [_read_output(output, folder) for output in response.get("outputs", ())]
    return Outcome(
        kind=response["outcome"],
        values=tuple(value for value, _ in values),
        types=tuple(name for _, name in values),
        shapes=tuple(response.get("shapes", ())),
        model=response.get("model"),
        stage=response.get("stage"),
        error=response.get("type"),
        text=response.get("text", ""),
    )


def _read_output(output: Mapping[str, Any], folder: Path) -> tuple[Value, str]:
    """Return the value of an output, and the name of its element type (empty for an empty sequence)."""
    if "sequence" not in output:
        return _read_tensor(output, folder), output["dtype"]
    parts = output["sequence"]
    return [_read_tensor(part, folder) for part in parts], parts[0]["dtype"] if parts else ""


def _read_tensor(tensor: Mapping[str, Any], folder: Path) -> npt.NDArray[Any]:
    dtype, shape = tensor["dtype"], tensor["shape"]
    count = math.prod(shape)
    label = f"a tensor {one_line(dtype, 40)}{shown(shape)}"
    if "strings" in tensor:
        size, expected = len(tensor["strings"]), count
    elif dtype not in ELEMENT_TYPES:
        raise ProtocolError(f"there is no element type {one_line(dtype, 40)!r}")
    else:
        size, expected = _read_tensor_size(tensor, folder), count * get_storage_dtype(dtype).itemsize
    if size != expected or size > _MAX_TENSOR:
        raise ProtocolError(f"{label} has {size} bytes or strings, not {shown(expected)}")
    try:
        return unpack(tensor)
    except (ValueError, OSError) as error:
        raise ProtocolError(f"{label} cannot be read: {error}") from error


def _read_tensor_size(tensor: Mapping[str, Any], folder: Path) -> int:
    """Return the size in bytes of a tensor whose data is in the message or in a file in ``folder``."""
    if "data" in tensor:
        try:
            return len(base64.b64decode(tensor["data"], validate=True))
        except (binascii.Error, ValueError) as error:
            raise ProtocolError(f"the data of a tensor is not base64: {error}") from error
    return _read_file_size(tensor["file"], folder)


def _read_file_size(name: str, folder: Path) -> int:
    path = Path(name)
    try:
        state = os.lstat(path)
    except (OSError, ValueError) as error:
        raise ProtocolError(f"there is no file {one_line(name, 100)!r}") from error
    if path.parent != folder or not stat.S_ISREG(state.st_mode):
        raise ProtocolError(f"{one_line(name, 100)!r} is not a file in the folder of the case")
    return state.st_size
