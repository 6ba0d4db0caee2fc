"""Whether a call enters Python: what the tests of both short cuts ask."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

from splitops import native

SHORT_CUT = native.available
"""Whether plans and functions are called past their ``__call__`` in Python."""


def entered(call: Callable[[], object]) -> list[str]:
    """The names of the Python functions that a call enters."""
    names: list[str] = []
    gc.disable()  # Hypothesis has a callback of it
    sys.setprofile(lambda frame, event, _: names.append(frame.f_code.co_name) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return names
