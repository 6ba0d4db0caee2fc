"""XML from outside: parsed with bounds, without document types, entities or anything external."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from xml.etree import ElementTree

from splitops.errors import ModelError, Where


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a file is believed before it is an error.

    Attributes:
        bytes: size of the XML. The largest published models take some tens of megabytes.
        elements: number of XML elements and attributes.
        depth: nesting of XML elements; a body inside a body takes three levels.
    """

    bytes: int = 1 << 28
    elements: int = 1 << 21
    depth: int = 128


DEFAULT_LIMITS: Final = Limits()


class _Builder(ElementTree.TreeBuilder):
    """Builds the tree and counts: an error is raised before the memory is taken."""

    def __init__(self, limits: Limits, where: Where) -> None:
        super().__init__()
        self._limits = limits
        self._where = where
        self._elements = 0
        self._depth = 0

    def start(self, tag: Any, attrs: Any, /) -> Any:
        self._elements += 1 + len(attrs)
        self._depth += 1
        if self._depth > self._limits.depth:
            raise ModelError(f"the XML is nested more than {self._limits.depth} levels deep", self._where)
        if self._elements > self._limits.elements:
            raise ModelError(
                f"the XML has more than {self._limits.elements} elements and attributes", self._where
            )
        return super().start(tag, attrs)

    def end(self, tag: Any, /) -> Any:
        self._depth -= 1
        return super().end(tag)


def parse(content: bytes, limits: Limits, where: Where) -> ElementTree.Element:
    """Parse an XML document."""
    from defusedxml.common import DefusedXmlException  # type: ignore[import-untyped]
    from defusedxml.ElementTree import DefusedXMLParser  # type: ignore[import-untyped]

    if len(content) > limits.bytes:
        raise ModelError(f"the XML has {len(content)} bytes, more than {limits.bytes}", where)
    parser = DefusedXMLParser(
        target=_Builder(limits, where), forbid_dtd=True, forbid_entities=True, forbid_external=True
    )
    try:
        parser.feed(content)
        root: ElementTree.Element = parser.close()
    except DefusedXmlException as error:
        raise ModelError(
            f"the XML has a document type or entities, which are rejected: {error}", where
        ) from error
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"the XML is malformed: {error}", where) from error
    return root
