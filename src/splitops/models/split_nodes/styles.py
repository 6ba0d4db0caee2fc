"""What a split node is rewritten for, and which of the equal ways is preferred."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from splitops.spec.operators import OperatorSchema, schema, versions


class SplitStyle(StrEnum):
    """Which of the equal ways to write a split is preferred."""

    SAME = "same"
    """What the split node declares now, as far as the target can say it."""
    LENGTHS = "lengths"
    """The length of each part."""
    COUNT = "count"
    """A number of parts, where it gives the same lengths."""


@dataclass(frozen=True, slots=True)
class ConversionTarget:
    """What a model is converted to: a domain and opset, None for the newest of OpenVINO."""

    domain: str
    opset: int | None = None

    def __str__(self) -> str:
        if not self.domain:
            return f"onnx:{self.opset}"
        return self.domain if self.opset is None else f"{self.domain}:opset{self.opset}"

    def schemas(self, like: OperatorSchema) -> tuple[OperatorSchema, ...]:
        """Return the versions that can write what an operator does, one of its own name first.

        Those that give outputs where it does, a sequence where it does; all, where the domain has none such.
        """
        if like.domain == self.domain:
            schema(like.name, self.opset, self.domain)
        schemas = versions(self.domain, self.opset)
        alike = [schema for schema in schemas if schema.gives_sequence is like.gives_sequence] or schemas
        return tuple(sorted(alike, key=lambda schema: schema.name != like.name))
