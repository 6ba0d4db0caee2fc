"""The split layers of a model, as every model tool sees them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from splitops.errors import SplitError, Where
from splitops.models.formats.openvino.model import Endpoint, Graph, Layer, OpenVINOModel, Port
from splitops.models.formats.openvino.splits import family_schema, split_attributes
from splitops.models.known import Tensor, fact
from splitops.models.sites import Origin, Site
from splitops.spec.operators import FAMILY, history
from splitops.spec.sizes.dims import UNKNOWN
from splitops.splitting.binding import Fact


def sites(model: OpenVINOModel) -> Iterator[Site]:
    """Yield every Split and VariadicSplit, in topological order, those in the bodies of layers included.

    Each has its :class:`~splitops.models.formats.openvino.model.Layer` as ``node``; values are named by
    :func:`endpoint_name`, and known as far as the ports state their types and shapes.

    Raises:
        ModelError: an attribute is not an integer, or a version is not an operation set.
    """
    for path, graph in model.graphs():
        for layer in graph.order:
            if layer.type in FAMILY["openvino"]:
                facts = [fact(stated(port), value=False) for port in layer.inputs]
                site = read_site(graph, layer, Where(model.file, path, layer.name), facts)
                if site.unread is not None:
                    raise site.unread
                yield site


def read_site(
    graph: Graph, layer: Layer, where: Where, facts: Sequence[Fact | None], *, conditional: bool = False
) -> Site:
    """Read a split layer.

    Args:
        graph: its graph.
        layer: the layer.
        where: its place.
        facts: what is known of its inputs.
        conditional: whether the model may run without running it.
    """
    sources = graph.sources(layer)
    ends = [Endpoint(layer.id, port.id) for port in layer.outputs]
    constants = (graph.by_id[source.layer].type == "Const" for source in sources)
    return layer_site(
        layer,
        where,
        facts,
        [endpoint_name(graph, end) if end in graph.consumers else "" for end in ends],
        inputs=[endpoint_name(graph, source) for source in sources],
        origins=[Origin.MODEL if constant else Origin.RUN for constant in constants],
        conditional=conditional,
    )


def layer_site(
    layer: Layer,
    where: Where,
    facts: Sequence[Fact | None],
    outputs: Sequence[str],
    *,
    inputs: Sequence[str] = (),
    origins: Sequence[Origin] = (),
    conditional: bool = False,
) -> Site:
    """Read a split layer of which somebody else knows the values, with their names."""
    row, attributes, unread = history(layer.type, "openvino")[0], {}, None
    try:
        row = family_schema(layer.type, layer.version, where)
        attributes = split_attributes(layer, where)
    except SplitError as error:
        error.where = where
        unread = error
    return Site(
        schema=row,
        attributes=attributes,
        facts=tuple(facts),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        where=where,
        origins=tuple(origins),
        conditional=conditional,
        unread=unread,
        node=layer,
    )


def stated(port: Port) -> Tensor:
    """Return what the file declares of a port; of one without dimensions nothing, it may be of any rank."""
    shape = tuple(size if size >= 0 else UNKNOWN for size in port.dims) if port.dims else None
    return Tensor(port.element_type, shape)


def endpoint_name(graph: Graph, end: Endpoint) -> str:
    """Return a name for the value of an output port: its least tensor name, else the layer's name and the
    port.
    """
    layer = graph.by_id[end.layer]
    port = layer.output(end.port)
    if port is not None and port.names:
        return min(port.names)
    return layer.name if len(layer.outputs) == 1 else f"{layer.name}:{end.port}"


_SINK: Final = re.compile(r"/sink_port_\d+$")
"""What OpenVINO appends to the name of an output, for the layer."""


def input_names(model: OpenVINOModel) -> tuple[str, ...]:
    """Return the name of each input of a model: its layer's, unless all tensor names are others.

    Then it is the least tensor name. OpenVINO adds those of casts and the like that it leaves out.
    """
    return tuple(
        min(_names(layer.outputs), key=lambda name: (name != layer.name, name), default=layer.name)
        for layer in model.inputs
    )


def _names(ports: Sequence[Port]) -> Iterator[str]:
    return (name for port in ports for name in port.names)


def output_names(model: OpenVINOModel) -> tuple[str, ...]:
    """Return the name of each output of a model, unique in it.

    A Result has the names of its ``output_names``, where it has none those of the port that it takes. IR
    version 10 adds the name of the layer that gives the value, as OpenVINO does. Of several names it is the
    one that the Result is named after (``y`` of ``y/sink_port_0``), else the least, as OpenVINO's
    ``Output.any_name`` is. Where several outputs claim a name, a Result that is named after it comes first,
    then one that declares it itself. The others take their next name, then the one they are named after, then
    that of their layer, at last their first one with ``_1``, ``_2`` and so on behind it.
    """
    results = model.outputs
    own = [_SINK.sub("", layer.name) for layer in results]
    found = [_claims(model, layer) for layer in results]
    claims = [
        (*sorted(names, key=lambda name: (name != mine, name)), mine, layer.name)
        for names, mine, layer in zip(found, own, results, strict=True)
    ]
    taken: set[str] = set()
    names: dict[int, str] = {}
    for position in sorted(
        range(len(results)), key=lambda at: (own[at] not in found[at], not results[at].output_names)
    ):
        free = next((name for name in claims[position] if name not in taken), None)
        suffix = 0
        while free is None:
            suffix += 1
            name = f"{claims[position][0]}_{suffix}"
            free = None if name in taken else name
        taken.add(free)
        names[position] = free
    return tuple(names[position] for position in range(len(results)))


def _claims(model: OpenVINOModel, result: Layer) -> Collection[str]:
    if result.output_names:
        return result.output_names
    end = model.graph.sources(result)[0]
    layer = model.graph.by_id[end.layer]
    port = layer.output(end.port)
    assert port is not None
    names = set(port.names)
    if model.version == 10:
        names.add(layer.name if len(layer.outputs) == 1 else f"{layer.name}.{layer.outputs.index(port)}")
    return names
