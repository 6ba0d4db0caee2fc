"""Diagram of a file's layout: a bar for the whole file, and one for each of its first 100 tensors."""

from __future__ import annotations

from typing import Final

from splitops.explain.canvas import LINE, Canvas
from splitops.explain.palette import get_colour
from splitops.files.formats import Contents
from splitops.files.tensors import StoredTensor

_WIDTH: Final = 960
_MARGIN: Final = 20
_LINE: Final = 24
_MAX_TENSORS: Final = 100


def draw(contents: Contents) -> str:
    """Draw where the tensors of a file are stored, as a self-contained SVG document.

    The first 100 tensors have a line each. Tensors that are stored in another file have no bar.
    """
    source = contents.sources[0]
    shown = contents.tensors[:_MAX_TENSORS]
    more = len(contents.tensors) - len(shown)
    heading = (
        f"{source.path.name}: {contents.format.name}, {source.size} bytes, {len(contents.tensors)} tensors"
    )
    canvas = Canvas(heading)
    canvas.add_text(_MARGIN + 4, _MARGIN + 13, heading + (f", the first {len(shown)} below" if more else ""))
    scale = (_WIDTH - 2 * _MARGIN) / max(1, source.size)
    top = _MARGIN + _LINE
    _draw_bar(canvas, top, 0, source.size, scale, LINE, "everything else: headers, padding")
    for index, tensor in enumerate(contents.tensors):
        if tensor.file == 0 and (more == 0 or tensor.size * scale >= 0.2):
            _draw_bar(canvas, top, tensor.offset, tensor.size, scale, get_colour(index), _label(tensor))
    for index, tensor in enumerate(shown):
        at = top + _LINE * (index + 1.5)
        if tensor.file == 0:
            _draw_bar(canvas, at, tensor.offset, tensor.size, scale, get_colour(index), _label(tensor))
        canvas.add_text(_MARGIN + 4, at + 13, _label(tensor))
    return canvas.to_document(_WIDTH, 2 * _MARGIN + _LINE * (len(shown) + 3))


def _label(tensor: StoredTensor) -> str:
    name = tensor.name if len(tensor.name) <= 80 else f"{tensor.name[:77]}..."
    place = f"{tensor.size} bytes at {tensor.offset}"
    return f"{name} {tensor.dtype or tensor.code} {tensor.shape}, {place}".lstrip()


def _draw_bar(
    canvas: Canvas, top: float, offset: int, size: int, scale: float, fill: str, title: str
) -> None:
    width = max(0.5, size * scale)
    canvas.add_rect(_MARGIN + offset * scale, top, width, 18, fill, title=title, fill_opacity="0.8")
