"""The cases of a user's own model: each split cut out as it is there, and the model as a whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from splitops.comparison.cases import build, named
from splitops.comparison.records import Case, Record
from splitops.errors import NOWHERE, ModelError, SplitError, one_line
from splitops.models import is_openvino, load, save
from splitops.models.graph.model import NodeModel
from splitops.models.sessions import Session, session
from splitops.models.sessions.inferred_splits import infer_splits
from splitops.models.sites import Site
from splitops.models.verify import made_inputs
from splitops.spec.elements.types import element_type_of
from splitops.spec.operators.schemas import Given
from splitops.splitting.binding import Fact

if TYPE_CHECKING:
    from splitops.models.formats.files import AnyModel

_WHOLE: Final = "model"


def cases_of_model(
    model: AnyModel, inputs: Mapping[str, Any] | None = None, *, allow_links: bool = False
) -> tuple[Case, ...]:
    """Return the cases of a model: its splits in the order in which they run, and the whole.

    Each split has the sizes and the lengths that it has for the inputs. A split of which they are not known
    without a run is asked as a part of the whole alone.
    """
    loaded = load(model, allow_links=allow_links) if isinstance(model, str | os.PathLike) else model
    with session(loaded, "reference") as ours:
        feeds = made_inputs(ours) if inputs is None else inputs
        return (*_cut_out(loaded, ours, feeds), _whole(loaded, ours, feeds))


def _cut_out(model: Any, ours: Session, feeds: Mapping[str, Any]) -> Iterator[Case]:
    stated = {_place(site): site for site in ours.sites}
    used: dict[str, int] = {}
    for site in infer_splits(NodeModel.opened(model).nodes, NOWHERE, feeds):
        record = _record_of(site, stated.get(_place(site), site))
        if record is None:
            continue
        name = f"{_WHOLE}/{one_line(site.where.node or site.schema.name, 80)}"
        used[name] = used.get(name, 0) + 1
        try:
            case = build(named(record))
        except SplitError:  # no model of its own says this, such as one whose output has no name
            continue
        yield replace(case, id=name if used[name] == 1 else f"{name}#{used[name]}", baseline=None)


def _place(site: Site) -> tuple[str | None, str | None]:
    return site.where.graph, site.where.node


def _record_of(site: Site, stated: Site) -> Record | None:
    """Return what generates a split as it is for some inputs; None where that is not known."""
    row, data = site.schema, site.facts[0] if site.facts else None
    if site.binding is None or data is None or data.type is None or data.shape is None:
        return None
    shape = tuple(size for size in data.shape if isinstance(size, int))
    lengths = site.lengths
    values = None if lengths is None else lengths.value
    unknown = lengths is not None and (values is None or (isinstance(values, tuple) and None in values))
    given = any(isinstance(value, Fact) for value in site.attributes.values())  # by a function's caller
    if len(shape) != len(data.shape) or unknown or given:
        return None
    attributes = {name: list(v) if isinstance(v, tuple) else v for name, v in site.attributes.items()}
    axis: Any = attributes.pop(row.axis.name, None)
    axis_fact = None
    if row.axis.given is Given.INPUT:
        axis_fact = site.facts[row.input_index(row.axis.name)]
        found = None if axis_fact is None else axis_fact.value
        axis = found[0] if isinstance(found, tuple) else found
    known = stated.facts[0].shape if stated.facts and stated.facts[0] is not None else None
    return Record(
        format="onnx" if row.domain == "" else "ir",
        operator=row.name,
        version=row.since_version,
        dtype=data.type.name,
        shape=shape,
        dynamic=known is None or not all(isinstance(size, int) for size in known),
        axis=axis,
        axis_dtype="int64" if axis_fact is None or axis_fact.type is None else axis_fact.type.name,
        axis_shape=() if axis_fact is None or not axis_fact.shape else (1,),
        lengths=list(values) if isinstance(values, tuple) else values,
        lengths_dtype="int64" if lengths is None or lengths.type is None else lengths.type.name,
        constant=all(fact is None or fact.value is not None for fact in stated.facts[1:]),
        attributes=attributes,
        outputs=tuple(f"p{i}" if name or row.domain else "" for i, name in enumerate(site.outputs)),
    )


def _whole(model: Any, ours: Session, feeds: Mapping[str, Any]) -> Case:
    found = ours.run(feeds)
    values = {name: [*map(np.array, v)] if isinstance(v, list) else np.array(v) for name, v in found.items()}
    content, weights = _content(model)
    kinds = {declared.name: declared.element_type for declared in ours.inputs}
    return Case(
        id=_WHOLE,
        operator=_WHOLE,
        rule=_WHOLE,
        title="the whole model",
        record=None,
        format="ir" if is_openvino(model) else "onnx",
        model=content,
        weights=weights,
        inputs=feeds,
        types={name: str(kinds[name]) for name in feeds},
        outputs=tuple(values),
        expected=tuple(values.values()),
        expected_types=tuple(map(_type_of, values.values())),
        exact=False,
    )


def _type_of(value: Any) -> str:
    first = (value[0] if value else None) if isinstance(value, list) else value
    return "" if first is None else str(element_type_of(first.dtype))


def _content(model: Any) -> tuple[bytes, bytes | None]:
    suffix = ".xml" if is_openvino(model) else ".onnx"
    with tempfile.TemporaryDirectory(prefix="splitops-compare-") as folder:
        path = Path(folder) / f"m{suffix}"
        save(model, path)
        binary = path.with_suffix(".bin")
        if path.with_name(f"{path.name}.data").exists():
            raise ModelError("the model is larger than 2 GB: cut out what is to be compared")
        return path.read_bytes(), binary.read_bytes() if binary.exists() else None
