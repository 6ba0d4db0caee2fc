"""The specification: schemas of all split operators, element types, and arithmetic with part sizes."""

from __future__ import annotations

from splitops.spec.elements.types import ELEMENT_TYPES, ElementType, element_type_of
from splitops.spec.operators import (
    FAMILY,
    SCHEMAS,
    Difference,
    OperatorSchema,
    VersionChange,
    difference,
    display_name,
    history,
    schema,
    versions,
)
from splitops.spec.operators.schemas import (
    Attribute,
    AttributeType,
    Option,
    Parameter,
    SourceKind,
    TypeConstraint,
    ValueSource,
)
from splitops.spec.sizes.rules import SizeRule

__all__ = [
    "ELEMENT_TYPES",
    "FAMILY",
    "SCHEMAS",
    "Attribute",
    "AttributeType",
    "Difference",
    "ElementType",
    "OperatorSchema",
    "Option",
    "Parameter",
    "SizeRule",
    "SourceKind",
    "TypeConstraint",
    "ValueSource",
    "VersionChange",
    "difference",
    "display_name",
    "element_type_of",
    "history",
    "schema",
    "versions",
]
