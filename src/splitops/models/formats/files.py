"""Detect the format of a model, and load and save models of either format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from splitops.errors import ModelError, shown_path

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from splitops.models.formats.openvino import OpenVINOModel

    ModelInMemory = onnx.ModelProto | onnx_ir.Model | OpenVINOModel
    AnyPath = str | os.PathLike[str]
    AnyModel = AnyPath | ModelInMemory
    ModelT = TypeVar("ModelT", onnx.ModelProto, onnx_ir.Model, OpenVINOModel)


class ModelReport:
    """Base class of the reports of tools that make a new model, which is the attribute ``model``."""

    __slots__ = ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model atomically.

        Raises:
            SplitError: there is no model, the extension does not match its format, the file cannot be
                written, or the model keeps its external data and ``path`` is in another folder.
        """
        save(self, path)


def is_openvino(model: Any) -> bool:
    """Return whether a model is OpenVINO IR. A path is judged by its extension, other objects by their type.

    Raises:
        ModelError: the extension of the path is neither ``.onnx`` nor ``.xml``.
    """
    if not isinstance(model, str | os.PathLike):
        from splitops.models.formats.openvino import OpenVINOModel

        return isinstance(model, OpenVINOModel)
    suffix = Path(model).suffix.lower()
    if suffix not in (".onnx", ".xml"):
        raise ModelError(
            f"{shown_path(model)} is not a model file: ONNX models end in .onnx, OpenVINO IR in .xml"
        )
    return suffix == ".xml"


def load(path: str | os.PathLike[str], *, allow_links: bool = False) -> Any:
    """Read a model from a file.

    Args:
        path: a ``.onnx`` file, or the ``.xml`` file of an OpenVINO IR with its ``.bin`` in the same folder.
        allow_links: whether the other files of the model may be links that lead out of its folder, as in
            the caches of model hubs. In a folder that you do not trust, links could lead to any file.

    Returns:
        An ``onnx.ModelProto`` that includes its external data, or an :class:`OpenVINOModel`, which keeps the
        ``.bin`` open and reads each constant when it is needed.

    Raises:
        ModelError: the file is missing, truncated, malformed or unsafe, or its extension is neither ``.onnx``
            nor ``.xml``.

    Examples:
        >>> import splitops
        >>> splitops.load("no-such-file.onnx")
        Traceback (most recent call last):
        ...
        splitops.errors.ModelError: cannot open 'no-such-file.onnx': no such file or directory \
(model 'no-such-file.onnx')
    """
    if not isinstance(path, str | os.PathLike):
        raise ModelError(f"load requires a path, not a {type(path).__name__}")
    if is_openvino(path):
        from splitops.models.formats import openvino as openvino_ir

        return openvino_ir.read(path, allow_links=allow_links)
    from splitops.models.formats import onnx as onnx_model

    return onnx_model.read(path, allow_links=allow_links)


def save(
    model: ModelInMemory | ModelReport, path: str | os.PathLike[str], *, keep_data: bool = False
) -> None:
    """Write a model to a file, atomically.

    Args:
        model: an ``onnx.ModelProto``, ``onnx_ir.Model`` or :class:`OpenVINOModel`, or a report with such a
            ``model``: the result of :func:`splitops.infer`, :func:`splitops.convert_with_report`,
            :func:`splitops.fix_with_report` or :func:`splitops.simplify_with_report`.
        path: an ``.onnx`` file for the first two types, or an ``.xml`` file for OpenVINO IR. Its ``.bin`` is
            written to the same folder. If an ONNX model exceeds 2 GB, its large initializers and its
            external data are written there, too, to a file with ``.data`` appended to the name.
        keep_data: whether external data of an ONNX model stays in its files, which have to be in the folder
            of ``path``; see :func:`splitops.fix`. The data of a report whose ``keeps_data`` is True stays
            in any case.

    Raises:
        ModelError: the model is not well formed, the extension does not match its format, the file cannot
            be written, or external data that is kept is in another folder.

    Examples:
        >>> import onnx.parser, pathlib, splitops, tempfile
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 9, opset_import: ["": 18]>
        ...     g (float[N] x) => (float[n] a, float[m] b) { a, b = Split<num_outputs = 2>(x) }''')
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "halves.onnx"
        >>> splitops.save(model, path)
        >>> splitops.load(path) == model
        True
    """
    write_model(model, path, keep_data=keep_data)


def write_model(
    model: ModelInMemory | ModelReport, path: str | os.PathLike[str], *, keep_data: bool = False
) -> tuple[Path, ...]:
    """Write a model as :func:`save` does, and return the paths of the written files."""
    if not isinstance(path, str | os.PathLike):
        raise ModelError(f"save requires a path, not a {type(path).__name__}")
    keep_data = keep_data or getattr(model, "keeps_data", False)
    model = getattr(model, "model", model)
    if is_openvino(path) is not is_openvino(model):
        raise ModelError(
            f"a {type(model).__name__} cannot be written to {shown_path(path)}: ONNX models end in .onnx, "
            "OpenVINO IR in .xml"
        )
    if is_openvino(model):
        from splitops.models.formats import openvino as openvino_ir

        openvino_ir.write(cast("OpenVINOModel", model), path)
        return Path(path).with_suffix(".bin"), Path(path)
    from splitops.models.formats import onnx as onnx_model

    return onnx_model.write(cast("onnx.ModelProto", model), path, keep_data=keep_data)
