"""Every example of the two published documents, Split-1 and VariadicSplit-1, as a whole model.

The layer listings stand as the documents print them, with the precisions, names and edges that a model needs.
"""

from __future__ import annotations

import numpy as np
import pytest
from ir_helpers import run_ir

from splitops.models.formats import openvino as ir
from splitops.models.formats.openvino.nodes import get_layer, to_nodes
from splitops.models.graph.split_nodes import iter_split_nodes

SHAPE = (6, 12, 10, 24)
DATA = np.arange(6 * 12 * 10 * 24, dtype=np.float32).reshape(SHAPE)

SPLIT = """
<layer id="9" name="split" type="Split" version="opset1">
    <data num_splits="3"/>
    <input>
        <port id="0" precision="FP32">
            <dim>6</dim>
            <dim>12</dim>
            <dim>10</dim>
            <dim>24</dim>
        </port>
        <port id="1" precision="I64"/>
    </input>
    <output>
        <port id="2" precision="FP32">
            <dim>6</dim>
            <dim>4</dim>
            <dim>10</dim>
            <dim>24</dim>
        </port>
        <port id="3" precision="FP32">
            <dim>6</dim>
            <dim>4</dim>
            <dim>10</dim>
            <dim>24</dim>
        </port>
        <port id="4" precision="FP32">
            <dim>6</dim>
            <dim>4</dim>
            <dim>10</dim>
            <dim>24</dim>
        </port>
    </output>
</layer>
"""

VARIADIC_123 = """
<layer id="9" name="split" type="VariadicSplit" version="opset1">
    <input>
        <port id="0" precision="FP32">
            <dim>6</dim>
            <dim>12</dim>
            <dim>10</dim>
            <dim>24</dim>
        </port>
        <port id="1" precision="I64"/>
        <port id="2" precision="I64">
            <dim>3</dim>
        </port>
    </input>
    <output>
        <port id="3" precision="FP32">
            <dim>1</dim>
            <dim>12</dim>
            <dim>10</dim>
            <dim>24</dim>
        </port>
        <port id="4" precision="FP32">
            <dim>2</dim>
            <dim>12</dim>
            <dim>10</dim>
            <dim>24</dim>
        </port>
        <port id="5" precision="FP32">
            <dim>3</dim>
            <dim>12</dim>
            <dim>10</dim>
            <dim>24</dim>
        </port>
    </output>
</layer>
"""

VARIADIC_REST = """
<layer id="9" name="split" type="VariadicSplit" version="opset1">
    <input>
        <port id="0" precision="FP32">
            <dim>6</dim>
            <dim>12</dim>
            <dim>10</dim>
            <dim>24</dim>
        </port>
        <port id="1" precision="I64"/>
        <port id="2" precision="I64">
            <dim>2</dim>
        </port>
    </input>
    <output>
        <port id="3" precision="FP32">
            <dim>4</dim>
            <dim>12</dim>
            <dim>10</dim>
            <dim>24</dim>
        </port>
        <port id="4" precision="FP32">
            <dim>2</dim>
            <dim>12</dim>
            <dim>10</dim>
            <dim>24</dim>
        </port>
    </output>
</layer>
"""


def document_model(
    layer: str, axis: int, lengths: list[int] | None, parts: int, version: int = 11
) -> ir.OpenVINOModel:
    """Wrap a layer listing into a network: its inputs before it, a Result for each output behind it."""
    first = 2 if lengths is None else 3
    weights = np.array([axis, *(lengths or [])], "<i8").tobytes()
    layers = [
        '<layer id="0" name="data" type="Parameter" version="opset1">'
        '<data shape="6,12,10,24" element_type="f32"/>'
        '<output><port id="0" precision="FP32" names="data"/></output></layer>',
        '<layer id="1" name="axis" type="Const" version="opset1">'
        '<data element_type="i64" shape="" offset="0" size="8"/>'
        '<output><port id="0" precision="I64"/></output></layer>',
    ]
    edges = [(0, 0, 9, 0), (1, 0, 9, 1)]
    if lengths is not None:
        layers.append(
            '<layer id="2" name="lengths" type="Const" version="opset1">'
            f'<data element_type="i64" shape="{len(lengths)}" offset="8" size="{8 * len(lengths)}"/>'
            '<output><port id="0" precision="I64"/></output></layer>'
        )
        edges.append((2, 0, 9, 2))
    layers.append(layer)
    for part in range(parts):
        names = f'output_names="part{part}"' if version == 11 else ""
        layers.append(
            f'<layer id="{20 + part}" name="part{part}" type="Result" version="opset1" {names}>'
            '<input><port id="0" precision="FP32"/></input></layer>'
        )
        edges.append((9, first + part, 20 + part, 0))
    listed = "".join(
        f'<edge from-layer="{a}" from-port="{b}" to-layer="{c}" to-port="{d}"/>' for a, b, c, d in edges
    )
    body = f"<layers>{''.join(layers)}</layers><edges>{listed}</edges>"
    text = f'<net name="document" version="{version}">{body}</net>'
    return ir.from_bytes(text.encode(), weights)


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize(
    ("layer", "axis", "lengths", "sizes"),
    [
        (SPLIT, 1, None, [4, 4, 4]),
        (VARIADIC_123, 0, [1, 2, 3], [1, 2, 3]),
        (VARIADIC_REST, 0, [-1, 2], [4, 2]),
    ],
    ids=[
        "Split into 3 along axis 1",
        "VariadicSplit [1, 2, 3] along axis 0",
        "VariadicSplit [-1, 2] along axis 0",
    ],
)
def test_document_examples(
    layer: str, axis: int, lengths: list[int] | None, sizes: list[int], version: int
) -> None:
    model = document_model(layer, axis, lengths, len(sizes), version)
    split = model.graph.by_id[9]
    for one in (model, ir.from_bytes(*ir.to_bytes(model))):
        outputs = list(run_ir(one, {"data": DATA}).values())
        assert [part.shape for part in outputs] == [port.dims for port in split.outputs]
        assert [part.shape[axis] for part in outputs] == sizes
        start = 0
        for part, size in zip(outputs, sizes, strict=True):
            assert np.array_equal(part, DATA.take(range(start, start + size), axis))
            assert np.shares_memory(part, DATA)
            start += size
        assert np.array_equal(np.concatenate(outputs, axis), DATA)
    (site,) = iter_split_nodes(to_nodes(model))
    assert str(site.schema) == ("Split-1" if lengths is None else "VariadicSplit-1")
    assert site.attributes == ({"num_splits": 3} if lengths is None else {})
    assert get_layer(site.node) is split
