"""Whether what is measured again and again stays level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Final

LIMITS: Final = {
    "resident bytes": 0.02,
    "allocated bytes": 0.01,
    "objects": 0.01,
    "files": 0.0,
    "threads": 0.0,
    "processes": 0.0,
}
"""By how much of its median each measure may grow after the warm-up."""

_WARM_UP: Final = 1 / 3
_FEWEST: Final = 9


@dataclass(frozen=True, slots=True)
class Trend:
    """How a measure went after the warm-up.

    Attributes:
        first: the median of the first third.
        last: the median of the last third.
        slope: the growth from one sample to the next: the median of the slopes between all pairs, which one
            step or a few outliers do not move, as they would a mean.
        growth: what that makes over all samples, as a share of the median.
    """

    first: float
    last: float
    slope: float
    growth: float


def trend(values: Sequence[float]) -> Trend:
    """Return the trend of a measure, without the warm-up: the first third of the samples.

    Args:
        values: the measure, sampled at equal distances.

    Raises:
        ValueError: there are too few samples to judge by.

    Examples:
        >>> trend([90, 100, 100] + [100, 101, 99] * 3).growth
        0.0
        >>> round(trend([100 + number for number in range(12)]).growth, 3)
        0.065
    """
    judged = values[int(len(values) * _WARM_UP) :]
    if len(values) < _FEWEST:
        raise ValueError(f"{len(values)} samples are too few to judge by: {_FEWEST} are needed")
    pairs = combinations(enumerate(judged), 2)
    slope = median((high - low) / (after - before) for (before, low), (after, high) in pairs)
    third = len(judged) // 3
    grown = slope * (len(judged) - 1)
    return Trend(median(judged[:third]), median(judged[-third:]), slope, grown / max(median(judged), 1))
