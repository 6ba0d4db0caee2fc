"""OpenVINO IR, versions 10 and 11, without the openvino package: read, run, change and write models.

Examples:
    >>> import numpy as np
    >>> from splitops.models import openvino_ir
    >>> builder = openvino_ir.Builder("halves")
    >>> data = builder.parameter("data", "f32", "?,4")
    >>> parts = builder.layer("Split", [data, builder.const(np.array(1))], {"num_splits": 2}, outputs=2)
    >>> for index, part in enumerate(parts):
    ...     builder.result(part, f"half{index}")
    >>> model = openvino_ir.from_bytes(*openvino_ir.to_bytes(builder.model()))
    >>> outputs = openvino_ir.run(model, {"data": np.zeros((3, 4), np.float32)})
    >>> {name: array.shape for name, array in outputs.items()}
    {'half0': (3, 2), 'half1': (3, 2)}
    >>> [str(site.schema) for site in openvino_ir.sites(model)]
    ['Split-1']
"""

from __future__ import annotations

from splitops.models.openvino_ir.builder import Builder, Output
from splitops.models.openvino_ir.constants import Constant, Weights
from splitops.models.openvino_ir.document import DEFAULT_LIMITS, Limits
from splitops.models.openvino_ir.evaluator import input_names, output_names, run
from splitops.models.openvino_ir.model import Edge, Endpoint, Graph, Layer, OpenVINOModel, Port
from splitops.models.openvino_ir.reader import from_bytes, read
from splitops.models.openvino_ir.sites import endpoint_name, sites
from splitops.models.openvino_ir.writer import to_bytes, write

__all__ = [
    "DEFAULT_LIMITS",
    "Builder",
    "Constant",
    "Edge",
    "Endpoint",
    "Graph",
    "Layer",
    "Limits",
    "OpenVINOModel",
    "Output",
    "Port",
    "Weights",
    "endpoint_name",
    "from_bytes",
    "input_names",
    "output_names",
    "read",
    "run",
    "sites",
    "to_bytes",
    "write",
]
