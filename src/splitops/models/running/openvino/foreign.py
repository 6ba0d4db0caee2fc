"""Layers of other operators: connected regions of them become small models that OpenVINO runs.

``openvino`` is an optional dependency, imported by :class:`Runner` alone.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from splitops.elements.packing import pack, packed_size, unpack
from splitops.elements.types import ElementType, from_openvino
from splitops.errors import ModelError, Where
from splitops.models.formats.openvino.constants import Constant
from splitops.models.formats.openvino.model import Edge, Endpoint, Graph, Layer, OpenVINOModel, Port
from splitops.models.formats.openvino.shapes import format_shape
from splitops.models.formats.openvino.writer import to_bytes
from splitops.models.movers.evaluated import Value

__all__ = ["Region", "Runner", "stages"]


def stages(
    graph: Graph, layers: Sequence[Layer], is_own: Callable[[Layer], bool]
) -> Iterator[tuple[bool, list[Layer]]]:
    """Divide layers, which are in topological order, into few stages of own and of foreign layers, in turn.

    Yields:
        Whether the layers of the stage are own, and the layers in topological order. All foreign layers of a
        stage depend on earlier stages and one another alone, so they are one region.
    """
    depth: dict[int, int] = {}  # even: own, odd: foreign
    found: dict[int, list[Layer]] = {}
    for layer in layers:
        own = is_own(layer)
        least = 0 if own else 1
        for source in graph.sources(layer):
            before = depth[source.layer]
            least = max(least, before + (before % 2 == (1 if own else 0)))
        depth[layer.id] = least
        found.setdefault(least, []).append(layer)
    for number in sorted(found):
        yield number % 2 == 0, found[number]


@dataclass(frozen=True, slots=True)
class Region:
    """A set of foreign layers with what goes in and out.

    Attributes:
        graph: the graph that they are of.
        layers: the layers in topological order.
        inputs: the output ports of other layers that they take.
        outputs: their own output ports that other layers take.
    """

    graph: Graph
    layers: Sequence[Layer]
    inputs: tuple[Endpoint, ...]
    outputs: tuple[Endpoint, ...]

    @classmethod
    def of(cls, graph: Graph, layers: Sequence[Layer], used: set[Endpoint]) -> Region:
        """Make the region of some layers; ``used`` are the output ports that are of use at all."""
        inside = {layer.id for layer in layers}
        inputs = [source for layer in layers for source in graph.sources(layer) if source.layer not in inside]
        outputs = [
            end
            for layer in layers
            for port in layer.outputs
            if (end := Endpoint(layer.id, port.id)) in used
            and any(target.layer not in inside for target in graph.consumers[end])
        ]
        return cls(graph, layers, tuple(dict.fromkeys(inputs)), tuple(outputs))

    def model(self, values: Mapping[Endpoint, Value]) -> OpenVINOModel:
        """Make a model of the region: constants stay constants, other inputs become Parameters of their
        shape.
        """
        ids = iter(
            range(max(self.graph.by_id) + 1, max(self.graph.by_id) + 2 + len(self.inputs) + len(self.outputs))
        )
        feeders = {
            end: _feeder(next(ids), values[end], self.graph.by_id[end.layer].constant) for end in self.inputs
        }
        results = [
            (Layer(next(ids), f"result{at}", "Result", "opset1", inputs=(Port(0),)), end)
            for at, end in enumerate(self.outputs)
        ]
        edges = []
        for layer in self.layers:
            for port in layer.inputs:
                target = Endpoint(layer.id, port.id)
                source = self.graph.producers[target]
                edges.append(Edge(Endpoint(feeders[source].id, 0) if source in feeders else source, target))
        edges += [Edge(end, Endpoint(layer.id, 0)) for layer, end in results]
        layers = (
            *feeders.values(),
            *(_anonymous(layer) for layer in self.layers),
            *(layer for layer, _ in results),
        )
        return OpenVINOModel(Graph("region", layers, tuple(edges)))


def _feeder(id_: int, value: Value, stored: Constant | None) -> Layer:
    kind, shape = value.element_type, value.array.shape
    port = Port(0, kind.precision, shape)
    if value.constant:
        constant = stored or Constant.of(value.array, kind)
        return Layer(id_, f"value{id_}", "Const", "opset1", {}, outputs=(port,), constant=constant)
    data = {"shape": format_shape(shape), "element_type": kind.openvino or ""}
    return Layer(id_, f"value{id_}", "Parameter", "opset1", data, outputs=(port,))


def _anonymous(layer: Layer) -> Layer:
    """Return the layer without tensor names, which could repeat."""
    ports = tuple(Port(port.id, port.precision, port.dims) for port in layer.outputs)
    return Layer(
        layer.id, layer.name, layer.type, layer.version, layer.data, layer.inputs, ports, layer.constant,
        layer.bodies,
        layer.attributes, layer.data_children, layer.children,
    )  # fmt: skip


class Runner:
    """Runs a region by OpenVINO's CPU plugin, as often as its graph is run.

    Args:
        region: the region.
    """

    def __init__(self, region: Region) -> None:
        self._region = region
        self._kept: tuple[object, Any] | None = None

    def run(self, values: Mapping[Endpoint, Value], where: Where, *, again: bool) -> dict[Endpoint, Value]:
        """Run the region.

        Args:
            values: what goes in.
            where: the place of the graph.
            again: whether to keep the compiled region, for later values of the same types and shapes.

        Returns:
            What comes out.

        Raises:
            ModelError: OpenVINO is not installed, or it cannot load or run the layers; they are named.
        """
        region = self._region
        where = replace(where, node=region.layers[0].name)
        names = _listing(region.layers)
        if importlib.util.find_spec("openvino") is None:
            raise ModelError(
                f"{names}: run by OpenVINO, which is not installed; pip install splitops[openvino]", where
            )
        openvino: Any = importlib.import_module("openvino")
        # Constants are those of the graph, the same in every run of it.
        fed = [values[end] for end in region.inputs if not values[end].constant]
        kind = [(value.element_type.name, value.array.shape) for value in fed]
        try:
            if self._kept is None or self._kept[0] != kind:
                self._kept = kind, _compiled(openvino, region, values)
            request = self._kept[1]
            for index, value in enumerate(fed):
                request.set_input_tensor(index, _to_tensor(openvino, value))
            request.infer()
            return {
                end: _from_tensor(request.get_output_tensor(index))
                for index, end in enumerate(region.outputs)
            }
        except ModelError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split())
            raise ModelError(f"{names}: OpenVINO cannot run it: {reason[-300:]}", where) from error
        finally:
            if not again:
                self._kept = None


def _compiled(openvino: Any, region: Region, values: Mapping[Endpoint, Value]) -> Any:
    document, weights = to_bytes(region.model(values))
    core = openvino.Core()
    tensor = openvino.Tensor(np.frombuffer(weights or b"\0", np.uint8))
    compiled = core.compile_model(
        core.read_model(document, tensor), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    return compiled.create_infer_request()


def _listing(layers: Sequence[Layer]) -> str:
    names = [str(layer) for layer in layers[:5]]
    return ", ".join(names) + (f" and {len(layers) - 5} more" if len(layers) > 5 else "")


def _to_tensor(openvino: Any, value: Value) -> Any:
    kind, array = value.element_type, value.array
    if kind.bits == 0:
        tensor = openvino.Tensor(openvino.Type.string, list(array.shape))
        if array.size:
            tensor.bytes_data = np.array(
                [text.encode("utf-8", "surrogateescape") for text in array.reshape(-1)], np.bytes_
            ).reshape(array.shape)
        return tensor
    tensor = openvino.Tensor(getattr(openvino.Type, kind.openvino or ""), list(array.shape))
    _bytes(tensor)[...] = np.frombuffer(pack(array, kind), np.uint8)
    return tensor


def _from_tensor(tensor: Any) -> Value:
    kind = _type_of(tensor)
    shape = tuple(tensor.shape)
    if kind.bits == 0:
        array = np.empty(shape, object)
        flat = [
            text.decode("utf-8", "surrogateescape")
            for text in np.asarray(tensor.bytes_data).reshape(-1).tolist()
        ]
        array.reshape(-1)[:] = flat
        return Value(array, kind)
    content = _bytes(tensor).tobytes()
    size = packed_size(kind, int(np.prod(shape, dtype=np.int64)))
    return Value(unpack(content[:size], kind, shape).copy(), kind)


def _type_of(tensor: Any) -> ElementType:
    name = tensor.element_type.get_type_name()
    kind = from_openvino(name)
    if kind is None:
        raise ModelError(f"OpenVINO gives elements of type {name!r}, which splitops does not know")
    return kind


def _bytes(tensor: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    flat: np.ndarray[Any, np.dtype[np.uint8]] = tensor.data.reshape(-1).view(np.uint8)
    return flat
