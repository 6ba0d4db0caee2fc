"""Building blocks for packages that extend splitops, such as splitops-compare.

Documents: :func:`parse_json` and :func:`parse_toml` parse hostile text with limits,
:func:`find_problem` checks values against a JSON Schema, and :func:`to_json_values` and
:func:`read_values` convert dataclasses. Files: :func:`read_bounded` reads a file with a size limit, and
:class:`StagedFiles` writes a set of files atomically. Models: :class:`Builder` builds an OpenVINO IR, and
:func:`to_bytes` serialises it. Commands: :class:`Command` reports errors as ``splitops`` does, and
:func:`run_command` runs it. The other names are types of OpenVINO models and outputs, and options,
argument types, input and output functions of commands.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from splitops.calls.hints import make_attribute_error
from splitops.cli import run_command
from splitops.cli._console import escape, json_option, make_console, make_table, print_json, print_written
from splitops.cli._group import Command
from splitops.cli._inputs import read_inputs
from splitops.cli._models import MODEL_FILE, add_weights, links_option
from splitops.cli._options import BYTES
from splitops.cli._paths import NEW_FILE, add_path
from splitops.common.atomic_write import StagedFiles
from splitops.common.documents import parse_json, parse_toml
from splitops.common.json_schema import find_problem
from splitops.common.json_values import read_values, to_json_values
from splitops.common.progress import report_progress
from splitops.common.untrusted_files import read_bounded

if TYPE_CHECKING:
    from splitops.models.formats.openvino import Builder, OpenVINOModel, Output, to_bytes

__all__ = [
    "BYTES",
    "MODEL_FILE",
    "NEW_FILE",
    "Builder",
    "Command",
    "OpenVINOModel",
    "Output",
    "StagedFiles",
    "add_path",
    "add_weights",
    "escape",
    "find_problem",
    "json_option",
    "links_option",
    "make_console",
    "make_table",
    "parse_json",
    "parse_toml",
    "print_json",
    "print_written",
    "read_bounded",
    "read_inputs",
    "read_values",
    "report_progress",
    "run_command",
    "to_bytes",
    "to_json_values",
]

_MODELS = "splitops.models.formats.openvino"
_OF_MODELS = ("Builder", "OpenVINOModel", "Output", "to_bytes")


def __getattr__(name: str) -> Any:
    if name not in _OF_MODELS:  # importing these loads onnx-ir, which many commands do not need
        raise make_attribute_error(__name__, name)
    return getattr(import_module(_MODELS), name)
