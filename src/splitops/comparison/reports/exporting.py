"""Write cases as folders of tests with a model, inputs and outputs, as ``onnx.backend.test`` has them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnx import numpy_helper

from splitops.comparison.records import Case
from splitops.ground.writing import StagedFiles


def write_tests(cases: Sequence[Case], folder: Path) -> tuple[int, int]:
    """Write cases of ONNX as folders of tests, and return the numbers of valid and of invalid ones.

    ``valid/`` is a folder for ``onnx.backend.test``. The folders in ``invalid/`` have inputs and no outputs.
    ``expected.json`` in each has the rule that the model breaks.
    """
    found = [case for case in cases if case.format == "onnx"]
    with StagedFiles(make_folders=True) as files:
        for case in found:
            kind = "valid" if case.valid else "invalid"
            place = folder / kind / f"test_{re.sub('[^a-z0-9]+', '_', case.id.lower()).strip('_')}"
            for name, content in _contents(case).items():
                with files.open(place / name) as file:
                    file.write(content)
    valid = sum(case.valid for case in found)
    return valid, len(found) - valid


def _contents(case: Case) -> dict[str, bytes]:
    """Return the files of a test by name; the runner sorts the inputs and outputs by number."""
    made = {"model.onnx": case.model}
    for index, (name, array) in enumerate(case.inputs.items()):
        made[f"test_data_set_0/input_{index}.pb"] = _written(array, name)
    for index, (name, value) in enumerate(zip(case.outputs, case.expected or (), strict=False)):
        made[f"test_data_set_0/output_{index}.pb"] = _written(value, name)
    if not case.valid:
        expected = {"case": case.id, "rule": case.error, "title": case.title}
        made["expected.json"] = (json.dumps(expected, indent=2) + "\n").encode()
    return made


def _written(value: Any, name: str) -> bytes:
    made = numpy_helper.from_list if isinstance(value, list) else numpy_helper.from_array
    content: bytes = made(value, name).SerializeToString()
    return content
