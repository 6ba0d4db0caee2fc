"""The split layers of a model, as every model tool sees them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    """Return what the file states of a port; of one without dimensions nothing, it may be of any rank."""
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


def input_names(model: OpenVINOModel) -> tuple[str, ...]:
    """Return the name of each input of a model: its least tensor name, else the name of its layer."""
    return tuple(
        min((name for port in layer.outputs for name in port.names), default=layer.name)
        for layer in model.inputs
    )


def output_names(model: OpenVINOModel) -> tuple[str, ...]:
    """Return the name of each output of a model, unique in it.

    It is OpenVINO's own (``Output.any_name``): the least of the Result's ``output_names``, where it has none
    the least tensor name of the port that it takes, where that has none the name of the Result layer. IR
    version 10 adds the name of the layer that gives the value, as OpenVINO does. Where several outputs
    claim a name, a Result that states it itself comes first; the other ones take their next name, at last
    the name with ``_1``, ``_2`` and so on behind it.
    """
    results = model.outputs
    claims = [(*_claims(model, layer), layer.name) for layer in results]
    taken: set[str] = set()
    names: dict[int, str] = {}
    for position in sorted(range(len(results)), key=lambda at: not results[at].output_names):
        free = next((name for name in claims[position] if name not in taken), None)
        suffix = 0
        while free is None:
            suffix += 1
            name = f"{claims[position][0]}_{suffix}"
            free = None if name in taken else name
        taken.add(free)
        names[position] = free
    return tuple(names[position] for position in range(len(results)))


def _claims(model: OpenVINOModel, result: Layer) -> list[str]:
    if result.output_names:
        return sorted(result.output_names)
    end = model.graph.sources(result)[0]
    layer = model.graph.by_id[end.layer]
    port = layer.output(end.port)
    assert port is not None
    names = set(port.names)
    if model.version == 10:
        names.add(layer.name if len(layer.outputs) == 1 else f"{layer.name}.{layer.outputs.index(port)}")
    return sorted(names)
