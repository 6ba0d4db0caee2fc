"""What a picture of the split axis shows: each part, or some of them where there are too many."""

from __future__ import annotations

from dataclasses import dataclass

from splitops.explain.layout import Explanation, indices


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a picture: a part, or several consecutive ones drawn as one.

    Attributes:
        first: index of its first part.
        count: how many parts it stands for.
        offset: where it begins on the split axis.
        size: its size on the split axis.
    """

    first: int
    count: int
    offset: int
    size: int

    @property
    def label(self) -> str:
        """The index of the part, or those of the first and the last one."""
        return indices(self.first, self.count)


def cells(layout: Explanation, limit: int) -> tuple[Cell, ...]:
    """Return at most ``limit`` cells for the parts; where these are more, those in the middle share one.

    Examples:
        >>> import splitops
        >>> layout = Explanation(splitops.plan("SplitToSequence", shape=(100,), split=1))
        >>> [cell.label for cell in cells(layout, 5)]
        ['0', '1', '2-97', '98', '99']
    """
    plan, count = layout.plan, len(layout)
    if count <= limit:
        return tuple(Cell(i, 1, plan.offsets[i], plan.sizes[i]) for i in range(count))
    tail = max(0, limit - 1) // 2
    head = max(0, limit - 1 - tail)
    end = count - tail
    middle = Cell(
        head, end - head, plan.offsets[head], plan.offsets[end - 1] + plan.sizes[end - 1] - plan.offsets[head]
    )
    single = [Cell(i, 1, plan.offsets[i], plan.sizes[i]) for i in (*range(head), *range(end, count))]
    return (*single[:head], middle, *single[head:])


def proportional(weights: list[int], minimums: list[int], total: int) -> list[int]:
    """Share ``total`` among items by their weights, none getting less than its minimum.

    The sum is ``total``, or the sum of the minimums where that is more.

    Examples:
        >>> proportional([2, 4, 0], [3, 3, 3], 18)
        [5, 10, 3]
    """
    total = max(total, sum(minimums))
    if not any(weights):
        weights = [1] * len(weights)
    # Items whose share is less than their minimum get the minimum; the others share what is left.
    free = list(range(len(weights)))
    shares = list(minimums)
    while True:
        left = total - sum(minimums) + sum(minimums[i] for i in free)
        weight = sum(weights[i] for i in free)
        below = {i for i in free if weights[i] * left < minimums[i] * weight}
        if not below:
            break
        free = [i for i in free if i not in below]
    # The borders are rounded instead of the shares, so that the sum is exact.
    border = done = 0
    for i in free:
        done += weights[i]
        end = done * left // weight
        shares[i] = end - border
        border = end
    return shares
