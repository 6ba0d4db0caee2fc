"""Read, build and write OpenVINO IR, versions 10 and 11, without the openvino package.

Examples:
    >>> import numpy as np
    >>> import splitops
    >>> from splitops.models.formats import openvino as openvino_ir
    >>> builder = openvino_ir.Builder("halves")
    >>> data = builder.parameter("data", "f32", "?,4")
    >>> parts = builder.layer("Split", [data, builder.const(np.array(1))], {"num_splits": 2}, outputs=2)
    >>> for index, part in enumerate(parts):
    ...     builder.result(part, f"half{index}")
    >>> model = openvino_ir.from_bytes(*openvino_ir.to_bytes(builder.model()))
    >>> outputs = splitops.run(model, {"data": np.zeros((3, 4), np.float32)})
    >>> {name: array.shape for name, array in outputs.items()}
    {'half0': (3, 2), 'half1': (3, 2)}
"""

from __future__ import annotations

from splitops.models.formats.openvino.builder import Builder, Output
from splitops.models.formats.openvino.constants import Constant, Weights
from splitops.models.formats.openvino.model import Edge, Endpoint, Graph, Layer, OpenVINOModel, Port
from splitops.models.formats.openvino.names import make_input_names, make_output_names, make_port_name
from splitops.models.formats.openvino.reader import from_bytes, open_model, read
from splitops.models.formats.openvino.writer import to_bytes, write

__all__ = [
    "Builder",
    "Constant",
    "Edge",
    "Endpoint",
    "Graph",
    "Layer",
    "OpenVINOModel",
    "Output",
    "Port",
    "Weights",
    "from_bytes",
    "make_input_names",
    "make_output_names",
    "make_port_name",
    "open_model",
    "read",
    "to_bytes",
    "write",
]
