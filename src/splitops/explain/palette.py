"""The colours of parts: told apart with every kind of colour vision (Okabe and Ito, 2008)."""

from __future__ import annotations

from operator import mul

TERMINAL = ("blue", "yellow", "green", "magenta", "cyan", "red", "white")
"""The colours of a terminal that has 8 or 16 of them; the nearest ones of :data:`PALETTE` would be alike."""
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8c8c8c")


def colour(part: int) -> str:
    """Return the colour of a part, ``#rrggbb``; neighbours differ."""
    return PALETTE[part % len(PALETTE)]


def ink(background: str) -> str:
    """Return the colour, black or white, of legible text on a background.

    Examples:
        >>> ink("#0072b2"), ink("#f0e442")
        ('#ffffff', '#000000')
    """
    linear = ((channel / 255) ** 2.2 for channel in _channels(background))
    luminance = sum(map(mul, (0.2126, 0.7152, 0.0722), linear))
    # Where black and white have the same contrast, as WCAG 2 defines it.
    return "#000000" if luminance > 0.179 else "#ffffff"


def shade(background: str, amount: float) -> str:
    """Return a colour mixed with white (``amount`` > 0) or black (< 0).

    Examples:
        >>> shade("#808080", 0.5), shade("#808080", -0.5)
        ('#c0c0c0', '#404040')
    """
    target = 255 if amount > 0 else 0
    mixed = (round(channel + (target - channel) * abs(amount)) for channel in _channels(background))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def _channels(background: str) -> tuple[int, int, int]:
    return int(background[1:3], 16), int(background[3:5], 16), int(background[5:7], 16)
