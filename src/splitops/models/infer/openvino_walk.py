"""The walk through an OpenVINO model: every layer in order, the bodies of layers included."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from splitops.errors import Rule, RuleError, SplitError, Where
from splitops.ground.progress import counted
from splitops.models.formats.openvino.model import Endpoint, Graph, Layer, OpenVINOModel, Port
from splitops.models.formats.openvino.sites import read_site, stated
from splitops.models.infer.splitting import OnSite, outputs_of, tightened
from splitops.models.known import MAX_ELEMENTS, Tensor, fact, meet_shapes
from splitops.models.movers import mover_of
from splitops.models.movers.elementwise import ELEMENTWISE
from splitops.models.sites import Site
from splitops.spec.operators import FAMILY
from splitops.spec.sizes.dims import UNKNOWN, Dim, Range, dimension

OpenVINOFound = dict[tuple[str | None, Endpoint], Tensor]
"""What is known of each output port, by graph path and port."""


def walk_openvino(
    model: OpenVINOModel,
    where: Where,
    on_site: OnSite,
    *,
    compatible: bool = False,
    tighten: bool = True,
) -> OpenVINOFound:
    """Walk a model.

    Args:
        model: the model.
        where: its place; its ``model``.
        on_site: called with every split node.
        compatible: infer splits as OpenVINO itself does.
        tighten: whether what a split proves of its own input is known of that input.
    """
    found: OpenVINOFound = {}
    for path, graph in model.graphs():
        place = replace(where, graph=path)
        found |= walk_graph(graph, place, on_site, compatible=compatible, tighten=tighten)
    return found


def walk_graph(
    graph: Graph,
    place: Where,
    on_site: OnSite,
    *,
    given: Mapping[int, Tensor] = MappingProxyType({}),
    compatible: bool = False,
    tighten: bool = True,
) -> OpenVINOFound:
    """Walk one graph, without the bodies of its layers.

    Args:
        graph: the graph.
        place: its place.
        on_site: as in :func:`walk_openvino`.
        given: what is known of the values of Parameters, by layer id, in the place of what they declare.
        compatible: as in :func:`walk_openvino`.
        tighten: as in :func:`walk_openvino`.
    """
    path = place.graph
    found: OpenVINOFound = {}
    for layer in counted(graph.order, "infer"):
        ends = [Endpoint(layer.id, port.id) for port in layer.outputs]
        sources = graph.sources(layer)
        inputs = [found.get((path, source), Tensor()) for source in sources]
        if layer.type in ("Parameter", "Const"):
            outputs = [given.get(layer.id) or known_before(layer, place)]
        elif layer.type in FAMILY["openvino"]:
            outputs, data = _split(graph, layer, place, inputs, on_site, compatible)
            if data is not None and tighten:
                found[path, sources[0]] = data
        else:
            outputs = infer_layer(layer, inputs)
        found.update({(path, end): known for end, known in zip(ends, outputs, strict=True)})
    return found


def known_before(layer: Layer, where: Where) -> Tensor:
    """Return what is known of the value of a Parameter or a Const; of another layer nothing."""
    if layer.type == "Parameter":
        where = replace(where, node=layer.name)
        return Tensor(layer.element_type(where), layer.shape(where))
    constant = layer.constant
    if constant is None:
        return Tensor()
    value = None
    if math.prod(constant.shape) <= MAX_ELEMENTS and (constant.element_type.integer or _is_float(constant)):
        value = constant.array(replace(where, node=layer.name))
    return Tensor(constant.element_type, constant.shape, value)


def _is_float(constant: Any) -> bool:
    return constant.element_type.name in ("float32", "float64")


def _split(
    graph: Graph,
    layer: Layer,
    place: Where,
    inputs: Sequence[Tensor],
    on_site: OnSite,
    compatible: bool,
) -> tuple[list[Tensor], Tensor | None]:
    facts = [fact(known, value=True) for known in inputs]
    where = replace(place, node=layer.name)
    site = read_site(graph, layer, where, facts, conditional=place.graph is not None)
    outputs = outputs_of(site, inputs)
    if compatible and inputs and (site.error is None or _openvino_accepts(site.error)):
        return _as_openvino(site, inputs[0]), None
    on_site(site)
    tensors = [known if isinstance(known, Tensor) else Tensor() for known in outputs]
    data = tightened(site, inputs[0]) if inputs else None
    return tensors, data if isinstance(data, Tensor) and data != inputs[0] else None


def _openvino_accepts(error: SplitError) -> bool:
    """Return whether OpenVINO's inference goes on: with too little for -1, or sizes it does not know."""
    return isinstance(error, RuleError) and (
        error.rule is Rule.REMAINDER_NEGATIVE
        or isinstance(error.values.get("size"), Range)
        or error.values.get("axis", 0) is None
    )


def _as_openvino(site: Site, data: Tensor) -> list[Tensor]:
    """Return what OpenVINO's own inference says of a split.

    It keeps nothing but the rank where the axis is not known; it rounds both ends of a range down where a
    split is in equal parts; of an axis that is not exact it knows nothing of what -1 takes; and it gives -1
    nothing where the other lengths are too long.
    """
    count, shape = len(site.outputs), data.shape
    axis = site.facts[1].value if len(site.facts) > 1 and site.facts[1] is not None else None
    axis = axis[0] if isinstance(axis, tuple) and axis else axis
    if shape is None:
        return [Tensor(data.type)] * count
    if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        return [Tensor(data.type, (UNKNOWN,) * len(shape))] * count
    axis %= len(shape)
    sizes = _openvino_sizes(site, shape[axis], count)
    return [Tensor(data.type, (*shape[:axis], size, *shape[axis + 1 :])) for size in sizes]


def _openvino_sizes(site: Site, size: Dim, count: int) -> list[Dim]:
    name = site.schema.count_attribute
    number = None if name is None else site.attributes.get(name)
    if isinstance(number, int) and number >= 1:
        if isinstance(size, int):
            return [size // number] * count
        return [dimension(size.lo // number, None if size.hi is None else size.hi // number)] * count
    lengths = site.facts[2].value if len(site.facts) > 2 and site.facts[2] is not None else None
    if not isinstance(lengths, tuple) or len(lengths) != count:
        return [UNKNOWN] * count
    known = sum(int(length) for length in lengths if length is not None and length >= 0)
    whole = all(length is not None for length in lengths)
    # A rest of exactly -1, OpenVINO takes for a size that it does not know.
    rest: Dim = UNKNOWN
    if isinstance(size, int) and whole and size - known != -1:
        rest = max(0, size - known)
    return [int(length) if length is not None and length >= 0 else rest for length in lengths]


def infer_layer(layer: Layer, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return what is known of a layer's outputs from its inputs, and from what the file declares."""
    ports = [stated(port) for port in layer.outputs]
    mover = mover_of(layer)
    rule = _ELEMENTWISE.get(layer.type) if mover is None else mover.infer_layer
    if rule is None or len(ports) != 1 or not layer.version.startswith("opset"):
        return ports
    try:
        found = rule(layer, inputs)
    except (ValueError, IndexError, TypeError, KeyError, OverflowError):
        return ports  # inputs that do not fit one another: the layer fails when it runs
    return [Tensor(found.type or ports[0].type, meet_shapes(found.shape, ports[0].shape), found.value)]


_ELEMENTWISE: Final = {row.layer: row.infer_layer for row in ELEMENTWISE}


def with_shapes(model: OpenVINOModel, values: OpenVINOFound) -> OpenVINOModel:
    """Return the model with the dimensions of its ports stated: -1 where one is not exact.

    Ports cannot state intervals; those stay in the ``shape`` of Parameter layers, which are not changed.
    """
    return model.with_graph(_graph(model.graph, None, values))


def _graph(graph: Graph, path: str | None, values: OpenVINOFound) -> Graph:
    return replace(graph, layers=tuple(_layer(graph, layer, path, values) for layer in graph.layers))


def _layer(graph: Graph, layer: Layer, path: str | None, values: OpenVINOFound) -> Layer:
    sources = zip(layer.inputs, graph.sources(layer), strict=True)
    inputs = tuple(_port(port, values.get((path, source))) for port, source in sources)
    outputs = tuple(_port(port, values.get((path, Endpoint(layer.id, port.id)))) for port in layer.outputs)
    bodies = tuple(
        (tag, _graph(body, f"{layer.name}/{tag}" if path is None else f"{path}/{layer.name}/{tag}", values))
        for tag, body in layer.bodies
    )
    return replace(layer, inputs=inputs, outputs=outputs, bodies=bodies)


def _port(port: Port, known: Tensor | None) -> Port:
    if known is None or known.shape is None:
        return port
    precision = known.type.precision if known.type is not None and known.type.precision else port.precision
    dims = tuple(size if isinstance(size, int) else -1 for size in known.shape)
    return replace(port, dims=dims, precision=precision)
