"""Models of OpenVINO IR with If, Loop and TensorIterator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np

from splitops.models.formats import openvino as ir


class Body:
    """A body, and the lines that join its Parameters and Results to the ports of its layer."""

    def __init__(self) -> None:
        self.builder = ir.Builder()
        self.lines: list[tuple[str, str, str]] = []

    def takes(self, name: str, kind: str, shape: Any, line: str) -> ir.Output:
        self.lines.append(("input", name, line))
        return self.builder.parameter(name, kind, shape)

    def gives(self, name: str, value: ir.Output, line: str) -> None:
        self.lines.append(("output", name, line))
        self.builder.result(value, name)

    def finish(self) -> tuple[ir.Graph, dict[str, int], str]:
        graph = self.builder.model().graph
        ids = {layer.name: layer.id for layer in graph.layers}
        lines = "".join(
            f'<{tag} internal_layer_id="{ids[name]}" {line}/>' for tag, name, line in self.lines if line
        )
        return graph, ids, lines


def port(number: int) -> str:
    return f'external_port_id="{number}"'


def slices(number: int, size: int = 1, *, axis: int = 0, reverse: bool = False) -> str:
    ends = f'start="-1" end="0" stride="-{size}"' if reverse else f'start="0" end="-1" stride="{size}"'
    return f'{port(number)} axis="{axis}" {ends} part_size="{size}"'


COUNTER = 'external_port_id="-1" purpose="current_iteration"'
CONDITION = 'external_port_id="-1" purpose="execution_condition"'


def fill(model: ir.OpenVINOModel, name: str, bodies: Mapping[str, Body], back: Sequence[str] = ()) -> Any:
    """Return the model with bodies and their port maps in a layer; a back edge is "result>parameter"."""
    graphs, children = [], []
    for prefix, body in bodies.items():
        graph, ids, lines = body.finish()
        graphs.append((f"{prefix}body", graph))
        children.append(ElementTree.fromstring(f"<{prefix}port_map>{lines}</{prefix}port_map>"))
        edges = "".join(
            f'<edge from-layer="{ids[source]}" to-layer="{ids[target]}"/>'
            for source, _, target in (edge.partition(">") for edge in back)
        )
        if back:
            children.append(ElementTree.fromstring(f"<back_edges>{edges}</back_edges>"))
    found = tuple(
        replace(layer, bodies=tuple(graphs), children=tuple(children)) if layer.name == name else layer
        for layer in model.graph.layers
    )
    return model.with_graph(replace(model.graph, layers=found))


def reread(model: ir.OpenVINOModel) -> ir.OpenVINOModel:
    return ir.from_bytes(*ir.to_bytes(model))


def if_model(kind: str = "If", version: str = "opset8", split: str = "VariadicSplit") -> ir.OpenVINOModel:
    """An If that splits ``x`` by ``lengths``, and gives the first or the second part."""
    builder = ir.Builder()
    inputs = [
        builder.parameter("c", "boolean", "..."),
        builder.parameter("x", "f32", "?"),
        builder.parameter("lengths", "i64", (2,)),
    ]
    builder.result(builder.layer(kind, inputs, name="gate", version=version, element_type="f32")[0], "y")
    bodies = {}
    for at, branch in enumerate(("then_", "else_")):
        body = Body()
        x = body.takes("p", "f32", "?", port(1))
        lengths = body.takes("l", "i64", (2,), port(2))
        parts = body.builder.layer(split, [x, body.builder.const(0), lengths], outputs=2, name="cut")
        body.gives("r", parts[at], port(3))
        bodies[branch] = body
    return reread(fill(builder.model(), "gate", bodies))


def loop_model(
    *, condition: Callable[[Body, ir.Output], ir.Output] | None = None, size: int = 1, reverse: bool = False
) -> ir.OpenVINOModel:
    """A Loop: each slice of ``x`` is split; the second halves are joined, the first is carried on."""
    builder = ir.Builder()
    inputs = [
        builder.parameter("trips", "i64", "..."),
        builder.parameter("going", "boolean", "..."),
        builder.parameter("x", "f32", "?,2,3"),
        builder.parameter("before", "f32", "?,1,3"),
        builder.parameter("checks", "boolean", "?"),
    ]
    outputs = builder.layer("Loop", inputs, outputs=3, version="opset5", name="loop", element_type="f32")
    for name, value in zip(("joined", "last", "numbers"), outputs, strict=True):
        builder.result(value, name)
    body = Body()
    number = body.takes("number", "i64", (1,), COUNTER)
    x = body.takes("part", "f32", (size, 2, 3), slices(2, size, reverse=reverse))
    body.takes("carried", "f32", "?,1,3", port(3))
    check = body.takes("check", "boolean", (1,), slices(4))
    first, second = body.builder.layer(
        "Split", [x, body.builder.const(np.array(1))], {"num_splits": 2}, outputs=2, name="cut",
        shapes=[(size, 1, 3)] * 2,
    )  # fmt: skip
    body.gives("joined", second, slices(5, size, reverse=reverse))
    body.gives("last", first, port(6))
    body.gives("numbers", number, slices(7))
    body.gives("ok", check if condition is None else condition(body, check), CONDITION)
    return reread(fill(builder.model(), "loop", {"": body}, ["last>carried"]))


def parts_model(size: int, axis: int, *, reverse: bool, back: bool) -> ir.OpenVINOModel:
    """A TensorIterator that joins the parts of ``x`` again, in the same or in the other order."""
    builder = ir.Builder()
    outputs = builder.layer("TensorIterator", [builder.parameter("x", "i64", "?,?,?")], outputs=2, name="ti")
    builder.result(outputs[0], "joined")
    builder.result(outputs[1], "last")
    body = Body()
    part = body.takes("part", "i64", "?,?,?", slices(0, size, axis=axis, reverse=reverse))
    (kept,) = body.builder.layer("Split", [part, body.builder.const(np.array(0))], {"num_splits": 1})
    body.gives("joined", kept, slices(1, size, axis=axis, reverse=back))
    body.gives("last", part, port(2))
    return reread(fill(builder.model(), "ti", {"": body}))


def nested_model() -> ir.OpenVINOModel:
    """A Loop in the body of which an If splits the slice by ``lengths``."""
    inner = if_model().graph
    gate = next(layer for layer in inner.layers if layer.name == "gate")
    builder = ir.Builder()
    inputs = [
        builder.const(np.array(3)),
        builder.const(np.array(True)),
        builder.parameter("c", "boolean", "?"),
        builder.parameter("x", "f32", "?"),
        builder.parameter("lengths", "i64", (2,)),
    ]
    outputs = builder.layer("Loop", inputs, version="opset5", name="loop", element_type="f32")
    builder.result(outputs[0], "y")
    body = Body()
    values = [
        body.takes("c", "boolean", (1,), slices(2)),
        body.takes("x", "f32", "?", port(3)),
        body.takes("lengths", "i64", (2,), port(4)),
    ]
    chosen = body.builder.layer("If", values, version="opset8", name="gate", element_type="f32")
    body.gives("y", chosen[0], slices(5, 2))
    body.gives("ok", body.builder.const(np.array(True)), CONDITION)
    model = fill(builder.model(), "loop", {"": body})
    (loop,) = (layer for layer in model.graph.layers if layer.name == "loop")
    ((tag, graph),) = loop.bodies
    filled = tuple(
        replace(layer, bodies=gate.bodies, children=gate.children) if layer.name == "gate" else layer
        for layer in graph.layers
    )
    nested = replace(loop, bodies=((tag, replace(graph, layers=filled)),))
    found = tuple(nested if layer is loop else layer for layer in model.graph.layers)
    return reread(model.with_graph(replace(model.graph, layers=found)))


def iterator(
    lines: Sequence[str], joined: str, back: Sequence[str] = (), *, axis: int = 0
) -> ir.OpenVINOModel:
    """A TensorIterator over ``x`` and ``z``; both are split, and an iteration gives one behind the other."""
    builder = ir.Builder()
    inputs = [builder.parameter(name, "f32", "?,2") for name in "xz"]
    builder.result(builder.layer("TensorIterator", inputs, name="ti")[0], "y")
    body = Body()
    taken = [body.takes(name, "f32", "?,2", line) for name, line in zip("xz", lines, strict=True)]
    taken = [
        body.builder.layer("Split", [value, body.builder.const(0)], {"num_splits": 1})[0] for value in taken
    ]
    body.gives("r", body.builder.layer("Concat", taken, {"axis": axis})[0], joined)
    return reread(fill(builder.model(), "ti", {"": body}, back))
