"""The messages of implementations and the JSON of reports, checked by their schemas; foreign tensors."""

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

from splitops.comparison.records import Case, CompareError, Outcome, Report, Value
from splitops.comparison.worker import pack, storage, unpack
from splitops.errors import one_line, shown
from splitops.ground.documents import parse_json
from splitops.ground.records import read_values
from splitops.ground.schemas import find_problem
from splitops.spec.elements.types import ELEMENT_TYPES

MAX_LINE: Final = 64 << 20
"""So many bytes a message has at most."""
_MAX_TENSOR: Final = 1 << 32
_PLACES: Final = {
    "report": ("report", None), "reply": ("messages", "reply"), "list of expectations": ("expected", None),
}  # fmt: skip


class ProtocolError(Exception):
    """An implementation says what is not a message."""


@cache
def schema(name: str) -> Any:
    """Return a JSON Schema: ``"messages"``, ``"report"`` or ``"expected"``."""
    return json.loads((files("splitops.comparison") / "schemas" / f"{name}.json").read_bytes())


def validate(found: Any, what: str, this: str = "this is") -> None:
    """Prove that a value is a ``"report"``, the ``"reply"`` of a process or a ``"list of expectations"``."""
    name, definition = _PLACES[what]
    whole = schema(name)
    wrong = find_problem(found, whole if definition is None else whole["$defs"][definition], root=whole)
    if wrong is not None:
        place, text = wrong
        at = f" at {one_line(place.lstrip('.'), 100)}" if place else ""
        raise CompareError(f"{this} not a {what} of a comparison: it {one_line(text, 300)}{at}")


def read_report(content: bytes, this: str = "this is") -> Report:
    """Read the JSON of a report; the message of an error begins with ``this``."""
    try:
        found = parse_json(content)
    except ValueError as error:
        raise CompareError(f"{this} not a report of a comparison: it is not JSON: {error}") from error
    validate(found, "report", this)
    report: Report = read_values(Report, found)
    return report


def start(setting: Mapping[str, str]) -> bytes:
    """Write the message that starts an implementation."""
    return _line(message="start", protocol=1, setting=dict(setting))


def ask(case: Case, number: int, model: Path, folder: Path) -> bytes:
    """Write the message that asks a case; large inputs go into files of the folder."""
    inputs = {
        name: pack(array, str(folder), f"input-{index}") | {"dtype": case.types[name]}
        for index, (name, array) in enumerate(case.inputs.items())
    }
    places = {"model": str(model), "folder": str(folder)}
    return _line(message="ask", id=number, inputs=inputs, outputs=list(case.outputs), **places)


def _line(**message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


def read(line: bytes) -> dict[str, Any]:
    """Read a reply."""
    try:
        found = parse_json(line)
        validate(found, "reply")
    except ValueError as error:
        problem = error.message if isinstance(error, CompareError) else f"it is not JSON: {error}"
        raise ProtocolError(one_line(f"{problem}; it begins {line[:60]!r}", 500)) from error
    return dict(found)


def outcome(found: Mapping[str, Any], folder: Path) -> Outcome:
    """Read what an implementation did from its answer; large outputs lie in the folder."""
    if "model" in found:
        _size_of_file(found["model"], folder)
    values = [_value(one, folder) for one in found.get("outputs", ())]
    return Outcome(
        kind=found["outcome"],
        values=tuple(value for value, _ in values),
        types=tuple(name for _, name in values),
        shapes=tuple(found.get("shapes", ())),
        model=found.get("model"),
        stage=found.get("stage"),
        error=found.get("type"),
        text=found.get("text", ""),
    )


def _value(found: Mapping[str, Any], folder: Path) -> tuple[Value, str]:
    if "sequence" not in found:
        return _tensor(found, folder), found["dtype"]
    parts = found["sequence"]
    return [_tensor(part, folder) for part in parts], parts[0]["dtype"] if parts else ""


def _tensor(found: Mapping[str, Any], folder: Path) -> npt.NDArray[Any]:
    dtype, shape = found["dtype"], found["shape"]
    count = math.prod(shape)
    tensor = f"a tensor {one_line(dtype, 40)}{shown(shape)}"
    if "strings" in found:
        size, expected = len(found["strings"]), count
    elif dtype not in ELEMENT_TYPES:
        raise ProtocolError(f"there is no element type {one_line(dtype, 40)!r}")
    else:
        size, expected = _size(found, folder), count * storage(dtype).itemsize
    if size != expected or size > _MAX_TENSOR:
        raise ProtocolError(f"{tensor} has {size} bytes or strings, not {shown(expected)}")
    try:
        return unpack(found)
    except (ValueError, OSError) as error:
        raise ProtocolError(f"{tensor} cannot be read: {error}") from error


def _size(found: Mapping[str, Any], folder: Path) -> int:
    """Return the number of bytes of a tensor, in the message or in a file of the folder."""
    if "data" in found:
        try:
            return len(base64.b64decode(found["data"], validate=True))
        except (binascii.Error, ValueError) as error:
            raise ProtocolError(f"the data of a tensor is not base64: {error}") from error
    return _size_of_file(found["file"], folder)


def _size_of_file(name: str, folder: Path) -> int:
    path = Path(name)
    try:
        state = os.lstat(path)
    except (OSError, ValueError) as error:
        raise ProtocolError(f"there is no file {one_line(name, 100)!r}") from error
    if path.parent != folder or not stat.S_ISREG(state.st_mode):
        raise ProtocolError(f"{one_line(name, 100)!r} is not a file in the folder of the case")
    return state.st_size
