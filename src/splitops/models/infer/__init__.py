"""Inference of types and shapes in whole models: the split family is ours, what surrounds it is followed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from splitops.errors import Where
from splitops.models.formats.files import is_openvino
from splitops.models.infer.splitting import OnSite
from splitops.models.known import Known, SequenceOf, Tensor
from splitops.models.sites import Site

if TYPE_CHECKING:
    import onnx_ir as ir
    from onnx import ModelProto

    from splitops.models.formats.files import AnyModel
    from splitops.models.formats.openvino import OpenVINOModel

__all__ = [
    "InferredModel",
    "InferredValue",
    "SequenceOf",
    "Site",
    "Tensor",
    "graph_of",
    "infer",
    "load_well_formed",
    "walk",
]


@dataclass(frozen=True, slots=True)
class InferredValue:
    """One value of a model, before and after inference.

    Attributes:
        graph: path of the subgraph or function; None is the main graph.
        name: its name.
        before: what the model declares of it.
        after: what is known of it.
    """

    graph: str | None
    name: str
    before: Known
    after: Known

    @property
    def is_new(self) -> bool:
        """Whether inference has found a type or size that the model does not state."""
        return _type_and_shape(self.before) != _type_and_shape(self.after)


def _type_and_shape(known: Known) -> Known:
    """Return what is known without the numbers: those of a weight are not stated, and no news."""
    if isinstance(known, SequenceOf):
        return replace(known, element=replace(known.element, value=None))
    return replace(known, value=None) if isinstance(known, Tensor) else known


@dataclass(frozen=True, slots=True)
class InferredModel:
    """A model with its types and shapes.

    Attributes:
        model: the model that declares them, of the kind that was given.
        values: every value, in the order in which it is computed.
        sites: every split node; one in a function once for every call.
    """

    model: Any
    values: tuple[InferredValue, ...]
    sites: tuple[Site, ...]

    def __getitem__(self, name: str) -> Known:
        """Return what is known of a value of the main graph."""
        for value in self.values:
            if value.graph is None and value.name == name:
                return value.after
        raise KeyError(name)


def infer(model: AnyModel, *, as_openvino: bool = False, allow_links: bool = False) -> InferredModel:
    """Infer the types and shapes of a model's values, through its split nodes.

    ONNX: nodes are visited in order, with their subgraphs and the model-local functions that they call; onnx
    infers every other operator, one node at a time, and a node that it cannot infer leaves its outputs
    unknown. Numbers computed from shapes are followed (Shape, Split, Concat, Reshape and the like).
    OpenVINO IR: the intervals of Parameters go through splits, data movers and elementwise layers; of other
    layers the file's forms are taken.

    Args:
        model: path of a ``.onnx`` or ``.xml`` file, ``onnx.ModelProto``, ``onnx_ir.Model`` or
            ``OpenVINOModel``.
        as_openvino: of OpenVINO IR, say of splits what OpenVINO's own inference says, which is looser.
        allow_links: of a path, whether links to the model's other files may lead out of its folder, as in
            :func:`splitops.load`.

    Returns:
        The values before and after, and the model that declares them.

    Raises:
        RuleError: a rule of the split family is broken at a split node that always runs.
        ModelError: the model is not well formed.

    Examples:
        >>> import onnx.parser, splitops
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 9, opset_import: ["": 13]>
        ...     g (float[N, 6] x) => (float a, float b) { a, b = Split<axis = 0>(x) }''')
        >>> inferred = splitops.infer(model)
        >>> str(inferred["a"])
        'float32[N/2, 6]'
    """
    sites: list[Site] = []

    def on_site(site: Site) -> None:
        if site.error is not None and not site.conditional:
            raise site.error
        sites.append(site)

    loaded, where = load_well_formed(model, allow_links=allow_links)
    values, made = walk(loaded, where, on_site, as_openvino=as_openvino)
    return InferredModel(made, values, tuple(sites))


def load_well_formed(
    model: AnyModel, *, weights: bool = True, allow_links: bool = False
) -> tuple[ModelProto | OpenVINOModel, Where]:
    """Return a model in memory, proved well formed, and its place.

    Args:
        model: a path or a model.
        weights: False leaves external data of ONNX models unread.
        allow_links: of a path, whether links to the model's other files may lead out of its folder.

    Raises:
        ModelError: it is not, or cannot be read.
    """
    from splitops.ground.reading import place_of
    from splitops.models.formats.onnx.storage import opened

    where = place_of(model)
    if not is_openvino(model):
        return opened(model, weights=weights, allow_links=allow_links), where  # type: ignore[arg-type]
    from splitops.models.formats import openvino

    return openvino.opened(model, allow_links=allow_links), where  # type: ignore[arg-type]


def graph_of(model: ModelProto | OpenVINOModel, where: Where) -> ir.Model | None:
    """Return a well-formed ONNX model as a graph for reading; None of OpenVINO IR, which is one.

    Raises:
        ModelError: onnx-ir cannot read it.
    """
    if is_openvino(model):
        return None
    from splitops.models.graph.onnx_model import as_graph

    return as_graph(cast("ModelProto", model), where)


def walk(
    model: ModelProto | OpenVINOModel,
    where: Where,
    on_site: OnSite,
    *,
    as_openvino: bool = False,
    write: bool = True,
    graph: ir.Model | None = None,
) -> tuple[tuple[InferredValue, ...], Any]:
    """Walk a well-formed model, and return its values and the model that declares what was found.

    Args:
        model: the model.
        where: its place.
        on_site: called with every split node; what it raises ends the walk.
        as_openvino: as in :func:`infer`.
        write: whether to make the model; None is in its place otherwise.
        graph: what :func:`graph_of` gives, where somebody has it already.
    """
    if is_openvino(model):
        return _walk_openvino(cast("OpenVINOModel", model), where, on_site, as_openvino, write)
    graph = graph or graph_of(model, where)
    return _walk_onnx(cast("ModelProto", model), cast("ir.Model", graph), where, on_site, write)


def _walk_onnx(
    model: ModelProto, graph: ir.Model, where: Where, on_site: OnSite, write: bool
) -> tuple[tuple[InferredValue, ...], ModelProto | None]:
    from splitops.models.formats.onnx.types import declared_types
    from splitops.models.infer.onnx_walk import Walk
    from splitops.models.infer.onnx_write import with_shapes

    values = Walk(graph, where, on_site).run().settled().by_name()
    stated = declared_types(model)
    rows = (InferredValue(*key, stated.get(key), known) for key, known in values.items())
    return tuple(rows), with_shapes(model, values) if write else None


def _walk_openvino(
    model: OpenVINOModel, where: Where, on_site: OnSite, as_openvino: bool, write: bool
) -> tuple[tuple[InferredValue, ...], OpenVINOModel | None]:
    from splitops.models.formats.openvino import endpoint_name, output_names
    from splitops.models.formats.openvino.sites import stated
    from splitops.models.infer.openvino_walk import walk_openvino, with_shapes

    found = walk_openvino(model, where, on_site, compatible=as_openvino)
    graphs = dict(model.graphs())
    rows = []
    for (path, end), known in found.items():
        graph = graphs[path]
        port = graph.by_id[end.layer].output(end.port)
        assert port is not None
        rows.append(InferredValue(path, endpoint_name(graph, end), stated(port), known))
    named = {row.name for row in rows if row.graph is None}
    for layer, name in zip(model.outputs, output_names(model), strict=True):
        if name not in named:
            port, source = layer.inputs[0], model.graph.sources(layer)[0]
            rows.append(InferredValue(None, name, stated(port), found[None, source]))
    return tuple(rows), with_shapes(model, found) if write else None
