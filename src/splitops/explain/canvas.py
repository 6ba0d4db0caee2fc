"""What all pictures are drawn on: SVG without scripts, fonts or links, legible on light and on dark pages."""

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
"""Element, attribute, colour on a light page, and on a dark one; the colours of parts stay as they are."""
STYLE: Final = (
    "@media (prefers-color-scheme: dark){"
    + "".join(f"{name}[{key}='{light}']{{{key}:{dark}}}" for name, key, light, dark in _IN_THE_DARK)
    + "}"
)
FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"


class Canvas:
    """A picture, drawn element by element; its size may be known at the end. All texts are plain.

    The title is what those hear who cannot see it.
    """

    def __init__(self, title: str) -> None:
        self.root = ET.Element("svg")
        ET.SubElement(self.root, "title").text = printable(title)
        ET.SubElement(self.root, "style").text = STYLE
        self.rect(0, 0, "100%", "100%", PAPER)

    def text(
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
        """Write a line; ``y`` is the baseline."""
        attributes = {"x": number(x), "y": number(y), "font-size": str(size), "fill": fill}
        optional = {"font-weight": weight, "text-anchor": anchor, "transform": transform}
        attributes |= {name: value for name, value in optional.items() if value is not None}
        ET.SubElement(self.root, "text", attributes).text = printable(text)

    def rect(
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
        """Draw a rectangle, with words that a pointer on it shows; ``more`` has ``_`` for ``-``."""
        place = {"x": x, "y": y, "width": width, "height": height}
        attributes = {key: value if isinstance(value, str) else number(value) for key, value in place.items()}
        attributes |= {"fill": fill} | {key.replace("_", "-"): value for key, value in more.items()}
        self._titled(ET.SubElement(self.root, "rect", attributes), title)

    def circle(self, x: float, y: float, radius: float, fill: str, *, title: str | None = None) -> None:
        """Draw a disc with a rim in the colour of the page, so that those that overlap are told apart."""
        place = {"cx": number(x), "cy": number(y), "r": number(radius), "fill": fill, "stroke": PAPER}
        self._titled(ET.SubElement(self.root, "circle", place), title)

    def line(self, x1: float, y1: float, x2: float, y2: float, stroke: str = LINE, **more: str) -> None:
        """Draw a straight line."""
        ends = {"x1": number(x1), "y1": number(y1), "x2": number(x2), "y2": number(y2), "stroke": stroke}
        ET.SubElement(self.root, "line", ends | {key.replace("_", "-"): value for key, value in more.items()})

    def polygon(self, points: list[tuple[float, float]], fill: str) -> None:
        """Draw a filled shape."""
        corners = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        ET.SubElement(self.root, "polygon", {"points": corners, "fill": fill})

    def _titled(self, element: ET.Element, title: str | None) -> None:
        if title is not None:
            ET.SubElement(element, "title").text = printable(title)

    def document(self, width: float, height: float) -> str:
        """Return the whole document."""
        self.root.attrib = {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {number(width)} {number(height)}",
            "width": number(width),
            "height": number(height),
            "role": "img",
            "font-family": FONT,
        }
        ET.indent(self.root)
        return ET.tostring(self.root, encoding="unicode") + "\n"


def number(value: float) -> str:
    """Write a number as briefly as a picture needs it."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def printable(text: str) -> str:
    """Return a text with a mark for each character that cannot be seen."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)
