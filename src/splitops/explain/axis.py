"""Layout of the split axis in diagrams: one cell per part, or one for several parts if there are too many."""

from __future__ import annotations

from dataclasses import dataclass

from splitops.explain.layout import Explanation, format_indices


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a diagram: a part, or several consecutive parts.

    Attributes:
        first: index of its first part.
        count: number of its parts.
        offset: offset along the split axis.
        size: size along the split axis.
    """

    first: int
    count: int
    offset: int
    size: int

    @property
    def label(self) -> str:
        """The index of the part, or the indices of the first and the last part."""
        return format_indices(self.first, self.count)


def group_cells(layout: Explanation, limit: int) -> tuple[Cell, ...]:
    """Divide the axis into at most ``limit`` cells. If there are more parts, the middle ones share a cell.

    Examples:
        >>> import splitops
        >>> layout = Explanation(splitops.plan("SplitToSequence", shape=(100,), split=1))
        >>> [cell.label for cell in group_cells(layout, 5)]
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


def share_width(weights: list[int], minimums: list[int], total: int) -> list[int]:
    """Divide ``total`` among items in proportion to their weights. Each item gets at least its minimum.

    The sum of the shares is ``total``, or the sum of the minimums if that is larger.

    Examples:
        >>> share_width([2, 4, 0], [3, 3, 3], 18)
        [5, 10, 3]
    """
    total = max(total, sum(minimums))
    if not any(weights):
        weights = [1] * len(weights)
    # Items whose share would be too small get their minimum. The others share the rest.
    free = list(range(len(weights)))
    shares = list(minimums)
    while True:
        left = total - sum(minimums) + sum(minimums[i] for i in free)
        weight = sum(weights[i] for i in free)
        below = {i for i in free if weights[i] * left < minimums[i] * weight}
        if not below:
            break
        free = [i for i in free if i not in below]
    # Borders are rounded instead of shares, so that the sum is exact.
    border = done = 0
    for i in free:
        done += weights[i]
        end = done * left // weight
        shares[i] = end - border
        border = end
    return shares
