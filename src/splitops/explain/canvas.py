"""Canvas for SVG diagrams that are legible on light and dark pages and contain no scripts, fonts or links."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Final

TEXT: Final = "#24292f"
FAINT: Final = "#636c76"
PAPER: Final = "#ffffff"
FIELD: Final = "#eaeef2"
LINE: Final = "#d0d7de"

_IN_THE_DARK: Final = (
    ("text", "fill", TEXT, "#e6edf3"),
    ("text", "fill", FAINT, "#9da7b3"),
    ("*", "stroke", FAINT, "#9da7b3"),
    ("*", "stroke", PAPER, "#0d1117"),
    ("*", "stroke", LINE, "#3d444d"),
    ("rect", "fill", PAPER, "#0d1117"),
    ("rect", "fill", FIELD, "#212830"),
    ("rect", "fill", LINE, "#3d444d"),
)
"""Element, attribute, colour on light pages, and colour on dark pages. The colours of parts do not change."""
STYLE: Final = (
    "@media (prefers-color-scheme: dark){"
    + "".join(f"{name}[{key}='{light}']{{{key}:{dark}}}" for name, key, light, dark in _IN_THE_DARK)
    + "}"
)
FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"


class Canvas:
    """A diagram to which elements are added. Its size is set at the end. Screen readers read its title.

    All texts are plain text: special characters are escaped.
    """

    def __init__(self, title: str) -> None:
        self.root = ET.Element("svg")
        ET.SubElement(self.root, "title").text = make_printable(title)
        ET.SubElement(self.root, "style").text = STYLE
        self.add_rect(0, 0, "100%", "100%", PAPER)

    def add_text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: int = 14,
        fill: str = TEXT,
        weight: str | None = None,
        anchor: str | None = None,
        transform: str | None = None,
    ) -> None:
        """Add a line of text whose baseline is at ``y``."""
        attributes = {"x": to_text(x), "y": to_text(y), "font-size": str(size), "fill": fill}
        optional = {"font-weight": weight, "text-anchor": anchor, "transform": transform}
        attributes |= {name: value for name, value in optional.items() if value is not None}
        ET.SubElement(self.root, "text", attributes).text = make_printable(text)

    def add_rect(
        self,
        x: float,
        y: float,
        width: float | str,
        height: float | str,
        fill: str,
        *,
        title: str | None = None,
        **more: str,
    ) -> None:
        """Add a rectangle with the tooltip ``title``. ``more`` are attributes, with ``_`` for ``-``."""
        place = {"x": x, "y": y, "width": width, "height": height}
        attributes = {key: each if isinstance(each, str) else to_text(each) for key, each in place.items()}
        attributes |= {"fill": fill} | {key.replace("_", "-"): value for key, value in more.items()}
        self._add_title(ET.SubElement(self.root, "rect", attributes), title)

    def add_circle(self, x: float, y: float, radius: float, fill: str, *, title: str | None = None) -> None:
        """Add a disc with a rim in the colour of the page, so that overlapping discs can be distinguished."""
        place = {"cx": to_text(x), "cy": to_text(y), "r": to_text(radius), "fill": fill, "stroke": PAPER}
        self._add_title(ET.SubElement(self.root, "circle", place), title)

    def add_line(self, x1: float, y1: float, x2: float, y2: float, stroke: str = LINE, **more: str) -> None:
        """Add a straight line. ``more`` are attributes as in :meth:`add_rect`."""
        ends = {"x1": to_text(x1), "y1": to_text(y1), "x2": to_text(x2), "y2": to_text(y2), "stroke": stroke}
        ET.SubElement(self.root, "line", ends | {key.replace("_", "-"): value for key, value in more.items()})

    def add_polygon(self, points: list[tuple[float, float]], fill: str) -> None:
        """Add a filled polygon with its corners at ``points``."""
        corners = " ".join(f"{to_text(x)},{to_text(y)}" for x, y in points)
        ET.SubElement(self.root, "polygon", {"points": corners, "fill": fill})

    def _add_title(self, element: ET.Element, title: str | None) -> None:
        if title is not None:
            ET.SubElement(element, "title").text = make_printable(title)

    def to_document(self, width: float, height: float) -> str:
        """Return the SVG document with a width and height in pixels."""
        self.root.attrib = {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {to_text(width)} {to_text(height)}",
            "width": to_text(width),
            "height": to_text(height),
            "role": "img",
            "font-family": FONT,
        }
        ET.indent(self.root)
        return ET.tostring(self.root, encoding="unicode") + "\n"


def to_text(value: float) -> str:
    """Format a number with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def make_printable(text: str) -> str:
    """Replace unprintable characters with U+FFFD."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)
