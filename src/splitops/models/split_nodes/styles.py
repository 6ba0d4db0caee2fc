"""The target of a conversion, and the preferred style of its split nodes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from splitops.spec.operators import OperatorSchema, schema, versions


class SplitStyle(StrEnum):
    """The preferred way to write a split, if several are equivalent."""

    SAME = "same"
    """The present style, if the target supports it."""
    LENGTHS = "lengths"
    """The length of each part."""
    COUNT = "count"
    """The number of parts, if it results in the same lengths."""


@dataclass(frozen=True, slots=True)
class ConversionTarget:
    """The target of a conversion: a domain and an opset; None is the newest opset of OpenVINO."""

    domain: str
    opset: int | None = None

    def __str__(self) -> str:
        if not self.domain:
            return f"onnx:{self.opset}"
        return self.domain if self.opset is None else f"{self.domain}:opset{self.opset}"

    def list_schemas(self, like: OperatorSchema) -> tuple[OperatorSchema, ...]:
        """Return the split operators of the target that can replace ``like``, those of the same name first.

        They return a sequence if and only if ``like`` does, unless the target has none of this kind. Raise
        OperatorError if ``like`` is in the domain of the target, but the target's opset is too old for it.
        """
        if like.domain == self.domain:
            schema(like.name, self.opset, self.domain)
        schemas = versions(self.domain, self.opset)
        candidates = [schema for schema in schemas if schema.gives_sequence is like.gives_sequence] or schemas
        return tuple(sorted(candidates, key=lambda schema: schema.name != like.name))
