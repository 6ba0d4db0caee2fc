"""Look up and compare the schemas of all versions of the split operators."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from splitops.errors import Rule, rule_error, shown
from splitops.spec.operators import onnx, openvino
from splitops.spec.operators.differences import Difference as Difference
from splitops.spec.operators.differences import VersionChange as VersionChange
from splitops.spec.operators.differences import compare
from splitops.spec.operators.schemas import OperatorSchema as OperatorSchema
from splitops.spec.sizes.dims import to_integer

SCHEMAS: Final[tuple[OperatorSchema, ...]] = onnx.ROWS + openvino.ROWS
"""All versions of all split operators."""

FAMILY: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        schemas[0].domain: tuple(dict.fromkeys(schema.name for schema in schemas))
        for schemas in (onnx.ROWS, openvino.ROWS)
    }
)
"""The names of the split operators, by domain."""

_DOMAINS: Final = {"": ("",), "ai.onnx": ("",), "openvino": ("openvino",), None: ("", "openvino")}


def schema(name: str, opset: int | None = None, domain: str | None = None) -> OperatorSchema:
    """Return the version of an operator that an opset selects: the newest one up to this opset.

    Args:
        name: name of the operator, for example ``"Split"`` or ``"VariadicSplit"``.
        opset: number of the opset that a model imports; None for the newest.
        domain: ``""`` or ``"ai.onnx"``, or ``"openvino"``; None for the first of them that has the operator.

    Raises:
        OperatorError: the domain has no such operator (``op.unknown``), or the opset is older than the
            operator or not an integer (``op.version``).

    Examples:
        >>> str(schema("Split", opset=17)), str(schema("SplitToSequence"))
        ('Split-13', 'SplitToSequence-24')
    """
    if opset is None and type(name) is str and (domain is None or type(domain) is str):
        newest = _NEWEST.get((domain, name))
        if newest is not None:
            return newest
    versions = history(name, domain)
    if opset is None:
        return versions[-1]
    number = to_integer(opset)
    if number is None:
        raise rule_error(
            name, Rule.OPERATOR_VERSION, f"opset = {shown(opset)}", "it must be an integer", opset=opset
        )
    for schema in reversed(versions):
        if schema.since_version <= number:
            return schema
    raise rule_error(
        name,
        Rule.OPERATOR_VERSION,
        f"opset = {shown(number)}",
        f"{name} requires opset {versions[0].since_version} or later",
        opset=opset,
    )


def versions(domain: str, opset: int | None = None) -> tuple[OperatorSchema, ...]:
    """Return the versions of all operators in an opset of a domain.

    Args:
        domain: ``""`` or ``"openvino"``.
        opset: number of the opset; None for the newest.

    Examples:
        >>> [str(row) for row in versions("", 10)], [str(row) for row in versions("openvino")]
        (['Split-2'], ['Split-1', 'VariadicSplit-1'])
    """
    schemas = (_HISTORIES[domain, name] for name in FAMILY[domain])
    available = (
        [schema for schema in each if opset is None or schema.since_version <= opset] for each in schemas
    )
    return tuple(each[-1] for each in available if each)


def history(name: str, domain: str | None = None) -> tuple[OperatorSchema, ...]:
    """Return all versions of an operator, the oldest first.

    Args:
        name: name of the operator, for example ``"Split"`` or ``"VariadicSplit"``.
        domain: ``""`` or ``"ai.onnx"``, or ``"openvino"``; None for the first of them that has the operator.

    Raises:
        OperatorError: the domain has no such operator (``op.unknown``).

    Examples:
        >>> [row.since_version for row in history("Split")]
        [1, 2, 11, 13, 18]
    """
    for key in _DOMAINS.get(domain, ()) if isinstance(domain, str | None) and isinstance(name, str) else ():
        if (key, name) in _HISTORIES:
            return _HISTORIES[key, name]
    known = ", ".join(
        f"{' and '.join(names)} of domain {space or 'ai.onnx'}" for space, names in FAMILY.items()
    )
    place = (
        ""
        if domain is None
        else f" of domain {shown('ai.onnx' if isinstance(domain, str) and not domain else domain)}"
    )
    raise rule_error(
        name if isinstance(name, str) and name.isidentifier() else shown(name),
        Rule.OPERATOR_UNKNOWN,
        f"operator {shown(name)}{place} is unknown",
        f"the split operators are {known}",
        name=name,
        domain=domain,
    )


def display_name(schema: OperatorSchema) -> str:
    """Return the shortest unique name of a version: ``Split-18``, ``openvino:Split-1``, ``VariadicSplit-1``.

    Examples:
        >>> display_name(schema("Split", domain="openvino"))
        'openvino:Split-1'
    """
    return str(schema) if history(schema.name)[0].domain == schema.domain else f"{schema.domain}:{schema}"


def difference(name: str, old: int, new: int, domain: str | None = None) -> Difference:
    """Return the changes between the versions of an operator that two opsets select.

    Args:
        name: name of the operator, for example ``"Split"``.
        old: number of the first opset.
        new: number of the second opset.
        domain: ``""`` or ``"ai.onnx"``, or ``"openvino"``; None for the first of them that has the operator.

    Raises:
        OperatorError: ``op.unknown`` or ``op.version``, as in :func:`schema`.

    Examples:
        >>> print(difference("SplitToSequence", 11, 24))
        SplitToSequence-11 -> SplitToSequence-24
          type T: adds bfloat16
          type S: adds bfloat16
    """
    return compare(schema(name, old, domain), schema(name, new, domain))


def _group_versions() -> dict[tuple[str, str], tuple[OperatorSchema, ...]]:
    found: dict[tuple[str, str], tuple[OperatorSchema, ...]] = {}
    for schema in sorted(SCHEMAS, key=lambda schema: schema.since_version):
        key = schema.domain, schema.name
        found[key] = (*found.get(key, ()), schema)
    return found


_HISTORIES: Final = _group_versions()
_NEWEST: Final = {
    (domain, name): _HISTORIES[key, name][-1]
    for domain, keys in reversed(_DOMAINS.items())
    for key in reversed(keys)
    for name in {schema.name for schema in SCHEMAS}
    if (key, name) in _HISTORIES
}
