"""Splits of which no run can bring other sizes than those that are known."""

from __future__ import annotations

from splitops.models.sites import Site


def settled_sizes(site: Site) -> list[tuple[int, int]] | None:
    """Return axis and size of each part; None where a run decides them, and may be wrong.

    Examples:
        >>> from splitops.splitting.binding import Fact
        >>> from splitops.spec.operators import schema
        >>> row, given = schema("Split", 18), {"num_outputs": 2}
        >>> settled_sizes(Site(schema=row, attributes=given, facts=(Fact(shape=(3,)),), outputs=("a", "b")))
        [(0, 2), (0, 1)]
        >>> settled_sizes(Site(schema=row, attributes=given, facts=(Fact(),), outputs=("a", "b"))) is None
        True
    """
    binding, inference = site.binding, site.inference
    if binding is None or inference is None or binding.axis is None or inference.parts is None:
        return None
    whole = None if inference.data is None else inference.data[binding.axis]
    known = [None if part is None else part[binding.axis] for part in inference.parts]
    sizes = [(binding.axis, size) for size in known if isinstance(size, int)]
    return sizes if isinstance(whole, int) and len(sizes) == len(known) else None
