"""Writes cases as test folders with a model, inputs and outputs, in the format of ``onnx.backend.test``."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnx import numpy_helper

from splitops.extension import StagedFiles
from splitops_compare.data import Case


def write_tests(cases: Sequence[Case], folder: Path) -> tuple[int, int]:
    """Write the ONNX cases as test folders. Return the number of valid ones and the number of invalid ones.

    ``valid/`` is a folder for ``onnx.backend.test``. Tests in ``invalid/`` do not have outputs, but a file
    ``expected.json`` with the rule that the model breaks.
    """
    of_onnx = [case for case in cases if case.format == "onnx"]
    with StagedFiles(make_folders=True) as files:
        for case in of_onnx:
            kind = "valid" if case.is_valid else "invalid"
            name = f"test_{re.sub('[^a-z0-9]+', '_', case.id.lower()).strip('_')}"
            for path, content in _make_files(case).items():
                with files.open(folder / kind / name / path) as file:
                    file.write(content)
    valid = sum(case.is_valid for case in of_onnx)
    return valid, len(of_onnx) - valid


def _make_files(case: Case) -> dict[str, bytes]:
    """Return the files of a test, keyed by path. Inputs and outputs are numbered in model order."""
    files = {"model.onnx": case.model}
    for index, (name, array) in enumerate(case.inputs.items()):
        files[f"test_data_set_0/input_{index}.pb"] = _serialise(array, name)
    for index, (name, value) in enumerate(zip(case.outputs, case.expected or (), strict=False)):
        files[f"test_data_set_0/output_{index}.pb"] = _serialise(value, name)
    if not case.is_valid:
        expected = {"case": case.id, "rule": case.error, "title": case.title}
        files["expected.json"] = (json.dumps(expected, indent=2) + "\n").encode()
    return files


def _serialise(value: Any, name: str) -> bytes:
    convert = numpy_helper.from_list if isinstance(value, list) else numpy_helper.from_array
    content: bytes = convert(value, name).SerializeToString()
    return content
