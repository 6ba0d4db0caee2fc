"""The contrast of the texts of a page, as WCAG 2 defines it."""

from __future__ import annotations

from typing import Any

_TEXTS = """() => {
  const own = (e) => [...e.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (colour !== 'rgba(0, 0, 0, 0)') return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  return [...document.querySelectorAll('body *')].filter((e) => own(e) && e.getClientRects().length)
    .filter((e) => !['SCRIPT', 'OPTION'].includes(e.tagName) && !e.closest('svg'))
    .map((e) => [e.innerText, getComputedStyle(e).color, ground(e)]);
}"""


def contrast_of_texts(page: Any) -> dict[tuple[str, str], float]:
    """The contrast of each pair of colours that some visible text has."""
    return {
        (ink, ground): contrast(_channels(ink), _channels(ground)) for _, ink, ground in page.evaluate(_TEXTS)
    }


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """The ratio of two colours, 1 to 21."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _channels(colour: str) -> tuple[float, ...]:
    return tuple(float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3])


def _luminance(colour: tuple[float, ...]) -> float:
    linear = [
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in (channel / 255 for channel in colour)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
