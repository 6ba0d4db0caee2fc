"""Parse untrusted XML with limits. Document types, entities and external references are rejected."""

from __future__ import annotations

from typing import Any, Final
from xml.etree import ElementTree

from splitops.errors import ModelError, Where

MAX_BYTES: Final = 1 << 28
"""Maximum size of the XML. The largest published models have some tens of megabytes."""
_MAX_ELEMENTS: Final = 1 << 21
"""Maximum number of elements plus attributes."""
_MAX_DEPTH: Final = 128
"""Maximum nesting of elements. A body inside a body needs three levels."""


class _Builder(ElementTree.TreeBuilder):
    """Builds the tree and counts its elements, to reject huge documents before the tree is large."""

    def __init__(self, where: Where) -> None:
        super().__init__()
        self._where = where
        self._elements = 0
        self._depth = 0

    def start(self, tag: Any, attrs: Any, /) -> Any:
        self._elements += 1 + len(attrs)
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ModelError(f"the XML is nested more than {_MAX_DEPTH} levels deep", self._where)
        if self._elements > _MAX_ELEMENTS:
            raise ModelError(f"the XML has more than {_MAX_ELEMENTS} elements and attributes", self._where)
        return super().start(tag, attrs)

    def end(self, tag: Any, /) -> Any:
        self._depth -= 1
        return super().end(tag)


def parse(content: bytes, where: Where) -> ElementTree.Element:
    """Parse an XML document and return its root. Every error is a ModelError."""
    from defusedxml.common import DefusedXmlException  # type: ignore[import-untyped]
    from defusedxml.ElementTree import DefusedXMLParser  # type: ignore[import-untyped]

    if len(content) > MAX_BYTES:
        raise ModelError(f"the XML has {len(content)} bytes, more than {MAX_BYTES}", where)
    parser = DefusedXMLParser(
        target=_Builder(where), forbid_dtd=True, forbid_entities=True, forbid_external=True
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
