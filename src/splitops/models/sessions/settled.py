"""What is known of the sizes of a split before it runs, and whether a run can bring other ones."""

from __future__ import annotations

from splitops.models.sites import Site


def known_sizes(site: Site) -> list[tuple[int, int]] | None:
    """Return axis and size of each part; None where a run decides them.

    Lengths that the model gives are known on an axis of any size: the split fails where they do not fit.

    Examples:
        >>> from splitops.splitting.binding import Fact
        >>> from splitops.spec.operators import schema
        >>> row, given = schema("Split", 18), {"num_outputs": 2}
        >>> known_sizes(Site(schema=row, attributes=given, facts=(Fact(shape=(3,)),), outputs=("a", "b")))
        [(0, 2), (0, 1)]
        >>> known_sizes(Site(schema=row, attributes=given, facts=(Fact(),), outputs=("a", "b"))) is None
        True
    """
    binding, inference = site.binding, site.inference
    if binding is None or inference is None or binding.axis is None or inference.parts is None:
        return None
    known = [None if part is None else part[binding.axis] for part in inference.parts]
    sizes = [(binding.axis, size) for size in known if isinstance(size, int)]
    whole = None if inference.data is None else inference.data[binding.axis]
    return sizes if isinstance(whole, int) and len(sizes) == len(known) else None


def is_settled(site: Site) -> bool:
    """Return whether every run of a split is valid: what it does not prove need not be proved.

    Examples:
        >>> from splitops.splitting.binding import Fact
        >>> from splitops.spec.operators import schema
        >>> row, given = schema("Split", 11), {"split": (1, 2)}
        >>> of_shape = lambda shape: Site(
        ...     schema=row, attributes=given, facts=(Fact(shape=shape),), outputs=("a", "b"))
        >>> is_settled(of_shape((3,))), is_settled(of_shape(None))
        (True, False)
    """
    binding = site.binding
    if binding is None or binding.axis is None or binding.data.shape is None:
        return False
    return isinstance(binding.data.shape[binding.axis], int) and known_sizes(site) is not None
