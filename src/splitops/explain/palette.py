"""Colours of parts. :data:`PALETTE` also suits people with colour blindness (Okabe and Ito, 2008)."""

from __future__ import annotations

from operator import mul

TERMINAL = ("blue", "yellow", "green", "magenta", "cyan", "red", "white")
"""Colours for terminals with 8 or 16 colours, on which some of :data:`PALETTE` would look the same."""
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8c8c8c")


def get_colour(part: int) -> str:
    """Return the colour of a part as ``#rrggbb``. Adjacent parts have different colours."""
    return PALETTE[part % len(PALETTE)]


def get_ink(background: str) -> str:
    """Return the colour of legible text on a background: black or white.

    Examples:
        >>> get_ink("#0072b2"), get_ink("#f0e442")
        ('#ffffff', '#000000')
    """
    linear = ((channel / 255) ** 2.2 for channel in _parse_channels(background))
    luminance = sum(map(mul, (0.2126, 0.7152, 0.0722), linear))
    # At this luminance, black and white have the same contrast, as defined by WCAG 2.
    return "#000000" if luminance > 0.179 else "#ffffff"


def mix(background: str, amount: float) -> str:
    """Mix a colour with white (``amount`` > 0) or black (``amount`` < 0).

    Examples:
        >>> mix("#808080", 0.5), mix("#808080", -0.5)
        ('#c0c0c0', '#404040')
    """
    target = 255 if amount > 0 else 0
    mixed = (round(channel + (target - channel) * abs(amount)) for channel in _parse_channels(background))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def _parse_channels(background: str) -> tuple[int, int, int]:
    return int(background[1:3], 16), int(background[3:5], 16), int(background[5:7], 16)
