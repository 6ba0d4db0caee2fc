"""The picture of a file's layout: a bar for the whole file, and one for each tensor in it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Final

from splitops.explain.palette import colour
from splitops.files.formats import Contents
from splitops.files.tensors import StoredTensor

__all__ = ["draw"]

_WIDTH: Final = 960
_MARGIN: Final = 20
_LINE: Final = 24
_MAX_TENSORS: Final = 100
_FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"


def draw(contents: Contents) -> str:
    """Draw where the tensors of a file lie, as a self-contained SVG document.

    The first 100 tensors have a line each. A tensor in another file than the opened one has no bar.
    """
    source = contents.sources[0]
    shown = contents.tensors[:_MAX_TENSORS]
    more = len(contents.tensors) - len(shown)
    height = 2 * _MARGIN + _LINE * (len(shown) + 3)
    root = ET.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {_WIDTH} {height}",
            "font-family": _FONT,
            "font-size": "13",
        },
    )
    ET.SubElement(root, "rect", {"width": "100%", "height": "100%", "fill": "#ffffff"})
    heading = (
        f"{source.path.name}: {contents.format.name}, {source.size} bytes, {len(contents.tensors)} tensors"
    )
    _text(root, _MARGIN + 13, heading + (f", the first {len(shown)} below" if more else ""))
    scale = (_WIDTH - 2 * _MARGIN) / max(1, source.size)
    top = _MARGIN + _LINE
    _bar(root, top, 0, source.size, scale, "#d0d7de", "everything else: headers, padding")
    for index, tensor in enumerate(contents.tensors):
        if tensor.file == 0 and (more == 0 or tensor.size * scale >= 0.2):
            _bar(root, top, tensor.offset, tensor.size, scale, colour(index), _label(tensor))
    for index, tensor in enumerate(shown):
        at = top + _LINE * (index + 1.5)
        if tensor.file == 0:
            _bar(root, at, tensor.offset, tensor.size, scale, colour(index), _label(tensor))
        _text(root, at + 13, _label(tensor))
    return ET.tostring(root, encoding="unicode") + "\n"


def _label(tensor: StoredTensor) -> str:
    name = tensor.name if len(tensor.name) <= 80 else f"{tensor.name[:77]}..."
    place = f"{tensor.size} bytes at {tensor.offset}"
    text = f"{name} {tensor.dtype or tensor.code} {tensor.shape}, {place}".lstrip()
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def _bar(root: ET.Element, top: float, offset: int, size: int, scale: float, fill: str, title: str) -> None:
    width = max(0.5, size * scale)
    place = {
        "x": f"{_MARGIN + offset * scale:.2f}",
        "y": f"{top:.0f}",
        "width": f"{width:.2f}",
        "height": "18",
    }
    bar = ET.SubElement(root, "rect", {**place, "fill": fill, "fill-opacity": "0.8"})
    ET.SubElement(bar, "title").text = title


def _text(root: ET.Element, baseline: float, text: str) -> None:
    made = ET.SubElement(root, "text", {"x": str(_MARGIN + 4), "y": f"{baseline:.0f}", "fill": "#24292f"})
    made.text = text
