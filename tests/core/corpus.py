"""The conformance corpus of ``tests/cases``: read, and put into the forms that a split is asked in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from comparison import Array, ramp_of

from splitops.spec import ELEMENT_TYPES, SCHEMAS, ElementType, OperatorSchema, SourceKind

CASES: Final = Path(__file__).parents[1] / "cases"


@dataclass(frozen=True)
class Case:
    """One split, with the sizes that it must give or the rule that it breaks."""

    schema: OperatorSchema
    name: str
    rule: str
    """The words of docs/semantics.md that the case tests."""
    shape: tuple[int, ...]
    dtype: str = "float32"
    attributes: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    outputs: int | None = None
    axis: int = 0
    sizes: tuple[int, ...] | None = None
    squeeze: bool = False
    error: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.schema.domain or 'onnx'} {self.schema}: {self.name}"

    @property
    def element_type(self) -> ElementType:
        return ELEMENT_TYPES[self.dtype]

    def data(self) -> Array:
        return ramp_of(self.shape, self.element_type)

    def tensor(self, name: str) -> Array | None:
        """Return an input other than the data; None is an absent one."""
        stated = self.inputs.get(name)
        if stated is None:
            return None
        return np.array(stated["value"], ELEMENT_TYPES[stated["dtype"]].numpy)

    def node_inputs(self) -> list[Array | None]:
        """Return the inputs as a node has them, those that its version does not know at the end."""
        names = [parameter.name for parameter in self.schema.inputs[1:]]
        names += [name for name in self.inputs if name not in names]
        return [self.data(), *(self.tensor(name) for name in names)]

    def arguments(self) -> dict[str, Any] | None:
        """Return the case as arguments of the operator's function; None where a call cannot state it."""
        inputs = {parameter.name for parameter in self.schema.inputs}
        if set(self.inputs) - inputs or self.element_type.storage is not None:
            return None
        # A call tells attribute and input of one name apart by version, and for Split-1 by the numbers' type.
        for name in inputs & set(self.attributes):
            entries = np.atleast_1d(self.attributes[name]).tolist()
            floating = any(isinstance(entry, float) for entry in entries)
            if self.schema.attribute(name) is None or floating or name in self.inputs:
                return None
        for name in self.inputs:
            tensor = self.tensor(name)
            if self.schema.attribute(name) is not None and tensor is not None and tensor.dtype.kind != "f":
                return None
        arguments = {**self.attributes, **{name: self.tensor(name) for name in self.inputs}}
        count = self.schema.count
        if count is not None and count.kind is SourceKind.OUTPUTS:
            if "num_outputs" in arguments or self.outputs == 0:
                return None
            arguments["num_outputs"] = self.outputs
        elif self.outputs not in (None, len(self.sizes or ())) or self._keeps_first_outputs():
            return None
        return arguments

    def _keeps_first_outputs(self) -> bool:
        count = self.schema.count
        stated = self.attributes.get(count.name) if count is not None else None
        return self.outputs is not None and stated is not None and stated != self.outputs


def path_of(schema: OperatorSchema) -> Path:
    """Return the file that holds the cases of a version."""
    return CASES / (schema.domain or "onnx") / f"{schema}.json"


def read(schema: OperatorSchema) -> tuple[list[Case], frozenset[str]]:
    """Return the cases of a version and the names of the element types that it takes.

    Raises:
        ValueError: the file is missing, is another version's, holds no case, or one that sets nothing.
    """
    path = path_of(schema)
    if not path.is_file():
        raise ValueError(f"{schema} has no conformance cases: {path.parent.name}/{path.name} is missing")
    stated = json.loads(path.read_text())
    version = schema.name, schema.since_version, schema.domain
    if (stated["operator"], stated["version"], stated["domain"]) != version:
        raise ValueError(f"{path.name} holds the cases of another version")
    cases = [_case(schema, entry) for entry in stated["cases"]]
    if not cases:
        raise ValueError(f"{path.name} holds no case")
    return cases, frozenset(stated["types"])


def _case(schema: OperatorSchema, entry: dict[str, Any]) -> Case:
    if ("sizes" in entry) == ("error" in entry):
        raise ValueError(f"{entry['name']!r} must state either sizes or an error")
    sequences = {key: tuple(entry[key]) for key in ("shape", "sizes") if key in entry}
    return Case(schema=schema, **(entry | sequences))


def read_all(schemas: Iterable[OperatorSchema] = SCHEMAS) -> list[Case]:
    """Return every case of every version."""
    return [case for schema in schemas for case in read(schema)[0]]
