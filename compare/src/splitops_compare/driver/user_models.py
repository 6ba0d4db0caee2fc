"""Makes cases from a user's own model: one for each split node if possible, and one for the whole model."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from splitops.errors import ModelError, SplitError, one_line
from splitops.models import is_openvino, load, save
from splitops.models.sessions import Session, find_splits_for, session
from splitops.models.verify import generate_inputs
from splitops.spec import SourceKind, element_type_of
from splitops.splitting import Fact
from splitops_compare.cases import build_case, make_entry
from splitops_compare.data import Case, CaseSpec

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from splitops.extension import OpenVINOModel
    from splitops.models.infer import SplitNode

    AnyModel = str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model | OpenVINOModel

_WHOLE: Final = "model"
"""Id, operator and rule of the case of the whole model."""


def make_model_cases(
    model: AnyModel, inputs: Mapping[str, Any] | None = None, *, allow_links: bool = False
) -> tuple[Case, ...]:
    """Make the cases of a model: one for each split, in the order of the model, and one for the whole model.

    Each split gets the sizes and lengths that are inferred for ``inputs``; None generates these. A split in a
    function has a case for each call. A split that cannot be a case, for example because its sizes are known
    only at run time, is tested only as a part of the whole model.
    """
    loaded = load(model, allow_links=allow_links) if isinstance(model, str | os.PathLike) else model
    with session(loaded, "reference") as reference:
        feeds = generate_inputs(reference) if inputs is None else inputs
        return (*_iter_split_cases(loaded, reference, feeds), _make_whole_case(loaded, reference, feeds))


def _iter_split_cases(model: Any, reference: Session, feeds: Mapping[str, Any]) -> Iterator[Case]:
    declared = {_get_key(split): split for split in reference.splits}
    used: dict[str, int] = {}
    for split in find_splits_for(model, feeds):
        spec = _make_spec(split, declared.get(_get_key(split), split))
        if spec is None:
            continue
        name = f"{_WHOLE}/{one_line(split.where.node or split.schema.name, 80)}"
        used[name] = used.get(name, 0) + 1
        try:
            case = build_case(make_entry(spec))
        except SplitError:  # a case cannot have this split, for example because an output has no name
            continue
        yield replace(case, id=name if used[name] == 1 else f"{name}#{used[name]}", baseline=None)


def _get_key(split: SplitNode) -> tuple[str | None, str | None]:
    return split.where.graph, split.where.node


def _make_spec(split: SplitNode, declared: SplitNode) -> CaseSpec | None:
    """Make the spec of a split, or return None if its type, shape, lengths or an attribute is unknown.

    ``split`` has the facts that are inferred for some inputs, ``declared`` those for the declared shapes.
    """
    schema, data = split.schema, split.facts[0] if split.facts else None
    if split.binding is None or data is None or data.type is None or data.shape is None:
        return None
    shape = tuple(size for size in data.shape if isinstance(size, int))
    lengths = split.lengths
    values = None if lengths is None else lengths.value
    unknown = lengths is not None and (values is None or (isinstance(values, tuple) and None in values))
    # The caller of a function may set an attribute of a node in it.
    from_caller = any(isinstance(value, Fact) for value in split.attributes.values())
    if len(shape) != len(data.shape) or unknown or from_caller:
        return None
    attributes = {name: list(v) if isinstance(v, tuple) else v for name, v in split.attributes.items()}
    axis: Any = attributes.pop(schema.axis.name, None)
    axis_fact = None
    if schema.axis.kind is SourceKind.INPUT:
        axis_fact = split.facts[schema.input_index(schema.axis.name)]
        value = None if axis_fact is None else axis_fact.value
        axis = value[0] if isinstance(value, tuple) else value
    declared_shape = declared.facts[0].shape if declared.facts and declared.facts[0] is not None else None
    return CaseSpec(
        format="onnx" if schema.domain == "" else "ir",
        operator=schema.name,
        version=schema.since_version,
        dtype=data.type.name,
        shape=shape,
        dynamic=declared_shape is None or not all(isinstance(size, int) for size in declared_shape),
        axis=axis,
        axis_dtype="int64" if axis_fact is None or axis_fact.type is None else axis_fact.type.name,
        axis_shape=() if axis_fact is None or not axis_fact.shape else (1,),
        lengths=list(values) if isinstance(values, tuple) else values,
        lengths_dtype="int64" if lengths is None or lengths.type is None else lengths.type.name,
        constant=all(fact is None or fact.value is not None for fact in declared.facts[1:]),
        attributes=attributes,
        outputs=tuple(f"p{i}" if name or schema.domain else "" for i, name in enumerate(split.outputs)),
    )


def _make_whole_case(model: Any, reference: Session, feeds: Mapping[str, Any]) -> Case:
    outputs = reference.run(feeds)
    values = {
        name: [*map(np.array, value)] if isinstance(value, list) else np.array(value)
        for name, value in outputs.items()
    }
    content, weights = _serialise(model)
    types = {declared.name: declared.element_type for declared in reference.inputs}
    return Case(
        id=_WHOLE,
        operator=_WHOLE,
        rule=_WHOLE,
        title="the whole model",
        spec=None,
        format="ir" if is_openvino(model) else "onnx",
        model=content,
        weights=weights,
        inputs=feeds,
        types={name: str(types[name]) for name in feeds},
        outputs=tuple(values),
        expected=tuple(values.values()),
        expected_types=tuple(map(_name_type, values.values())),
        exact=False,
    )


def _name_type(value: Any) -> str:
    """Return the name of the element type of an output. It is empty for an empty sequence."""
    first = (value[0] if value else None) if isinstance(value, list) else value
    return "" if first is None else str(element_type_of(first.dtype))


def _serialise(model: Any) -> tuple[bytes, bytes | None]:
    """Return the contents of the model file and the weights file, which is None for ONNX."""
    suffix = ".xml" if is_openvino(model) else ".onnx"
    with tempfile.TemporaryDirectory(prefix="splitops-compare-") as folder:
        path = Path(folder) / f"m{suffix}"
        save(model, path)
        binary = path.with_suffix(".bin")
        if path.with_name(f"{path.name}.data").exists():
            raise ModelError("the model is larger than 2 GB: compare a smaller part of it")
        return path.read_bytes(), binary.read_bytes() if binary.exists() else None
