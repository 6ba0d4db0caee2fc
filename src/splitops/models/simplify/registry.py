"""The rewrites by name, and the rounds in which they are applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from splitops.errors import ModelError, shown

if TYPE_CHECKING:
    from splitops.models.simplify.passes import SplitPass

NUMERICS: Final = "numerics"

ALLOWANCES: Final[Mapping[str, str]] = MappingProxyType({NUMERICS: "the last bits of floats may change"})
"""What a caller can allow beyond rewrites that keep every bit."""

DEFAULT_LIMIT: Final = 1 << 16
"""Larger parts of constants, in bytes, are not written a second time beside the whole."""


@dataclass(frozen=True, slots=True)
class Rewriting:
    """One rewrite.

    Attributes:
        name: its name.
        summary: what it does, in one line.
        module: the module of its function.
        roots: the roles of the nodes at which it begins.
        default: whether it is applied where no rewrites are named.
        openvino: whether OpenVINO models have it too.
        undoes_fixes: whether it may write a split in a form that a fix has left for the sake of a runtime.
        final: whether it looks only at what no other rewrite changes any more.
        options: what its function can be told.
    """

    name: str
    summary: str
    module: str
    roots: tuple[str, ...]
    default: bool = True
    openvino: bool = True
    undoes_fixes: bool = False
    final: bool = False
    options: tuple[str, ...] = ()

    @property
    def function(self) -> str:
        """The name of its function."""
        return self.name.replace("-", "_")

    def make_pass(self, **options: Any) -> SplitPass:
        """Return the onnx-ir pass, with those of the options that it takes."""
        from splitops.models.ops.operator import Role
        from splitops.models.simplify.passes import SplitPass

        module = import_module(f"splitops.models.simplify.{self.module}")
        taken = {name: options[name] for name in self.options if name in options}
        rewrite = partial(getattr(module, self.function), **taken)
        return SplitPass(self.name, frozenset(Role[root] for root in self.roots), rewrite)


_SPLIT, _CONCAT, _SLICE, _GATHER = ("SPLIT",), ("CONCAT",), ("SLICE",), ("GATHER",)
_DIVIDES: Final = ("SPLIT", "GATHER")

_REWRITES: Final = (
    Rewriting(
        "remove-whole-part", "a split into one part, or one part and empty ones, is its data", "parts", _SPLIT
    ),
    Rewriting(
        "fold-constants",
        "parts of constants and of known shapes are constants",
        "constants",
        _SPLIT,
        options=("limit",),
    ),
    Rewriting(
        "split-initializers",
        "a constant that only a split reads becomes a constant for each part",
        "constants",
        _SPLIT,
    ),
    Rewriting("empty-parts", "empty parts that are read are constants", "parts", _SPLIT),
    Rewriting(
        "sequence-reads",
        "what reads the sequence of a SplitToSequence reads parts, or the data",
        "sequences",
        ("SEQUENCE",),
        openvino=False,
        undoes_fixes=True,
    ),
    Rewriting("remove-whole-slice", "a Slice that takes whole axes is its data", "slices", _SLICE),
    Rewriting("merge-slices", "a Slice that only Slices read becomes part of each of them", "slices", _SLICE),
    Rewriting(
        "strided-slices",
        "Slices in n steps, from each of the first n positions, are a Reshape, a Split and Squeezes",
        "slices",
        _SLICE,
        undoes_fixes=True,
    ),
    Rewriting(
        "slices",
        "Slices that together are a whole axis are one Split",
        "slices",
        _SLICE,
        undoes_fixes=True,
    ),
    Rewriting(
        "gathers",
        "Gathers of neighbouring positions that together are a whole axis are one Split",
        "slices",
        _GATHER,
        undoes_fixes=True,
    ),
    Rewriting(
        "scalar-gathers",
        "Gathers of each position of an axis are one Split and Squeezes: more nodes, not by default",
        "slices",
        _GATHER,
        default=False,
        undoes_fixes=True,
    ),
    Rewriting("remove-single-concat", "a Concat of one value is the value", "concat", _CONCAT),
    Rewriting(
        "merge-concats",
        "a Concat that only another one on the same axis reads becomes part of it",
        "concat",
        _CONCAT,
    ),
    Rewriting(
        "concat-split",
        "what is split at the boundaries where it was concatenated is neither",
        "concat",
        _SPLIT,
    ),
    Rewriting("split-concat", "parts that are concatenated in their order are not split", "concat", _CONCAT),
    Rewriting(
        "merge-splits",
        "a split of a part, on the same axis, becomes one with the split that makes it",
        "parts",
        _SPLIT,
        undoes_fixes=True,
    ),
    Rewriting(
        "hoist-splits",
        "a split behind Reshapes and Transposes is in front of them, where that is fewer nodes",
        "moves",
        _DIVIDES,
    ),
    Rewriting(
        "merge-reshapes",
        "Reshapes and Transposes in a row are as few as move the same",
        "moves",
        ("RESHAPE", "TRANSPOSE"),
    ),
    Rewriting(
        "split-weights",
        "a split of a product with constant weights is products by their parts; of floats if allowed",
        "weights",
        _DIVIDES,
        options=("allow",),
    ),
    Rewriting(
        "remove-unused-parts",
        "parts that nobody reads are not made; a single part that is read is a Slice",
        "parts",
        _SPLIT,
        undoes_fixes=True,
    ),
    Rewriting(
        "shorten-lengths",
        "lengths that follow from the number of parts are not stated",
        "parts",
        _SPLIT,
        undoes_fixes=True,
    ),
    Rewriting(
        "set-equal-lengths",
        "splits that onnxruntime would take for one another state their lengths",
        "prevent_fusion",
        _SPLIT,
        openvino=False,
        final=True,
    ),
    Rewriting(
        "prevent-fusion",
        "what OpenVINO would fuse wrongly with a split is written so that it does not",
        "prevent_fusion",
        ("SPLIT", "SLICE", "TRANSPOSE"),
        final=True,
    ),
)

REWRITES: Final[Mapping[str, Rewriting]] = MappingProxyType({row.name: row for row in _REWRITES})
"""Every rewrite by name, in the order in which they are tried at a node."""


def chosen(names: Iterable[str] | None, *, keep_fixes: bool = False) -> tuple[Rewriting, ...]:
    """Return the rewrites of some names, in the order of the registry; None is those by default.

    Those by default can ``keep_fixes``, and do not undo them.
    """
    if names is None:
        rows = (row for row in REWRITES.values() if row.default)
        return tuple(row for row in rows if not (keep_fixes and row.undoes_fixes))
    wanted = _check_names(names, REWRITES, "rewrite")
    return tuple(row for row in REWRITES.values() if row.name in wanted)


def allowed(names: Iterable[str]) -> frozenset[str]:
    """Return what some names, of :data:`ALLOWANCES`, allow."""
    return _check_names(names, ALLOWANCES, "allowance")


def _check_names(names: Iterable[str], rows: Mapping[str, object], what: str) -> frozenset[str]:
    try:
        wanted = frozenset([names] if isinstance(names, str) else names)
    except TypeError as error:
        raise ModelError(f"{shown(names)} are not names of {what}s") from error
    for name in sorted(map(str, wanted)):
        if name not in rows:
            raise ModelError(f"there is no {what} {shown(name)}; the {what}s are {', '.join(rows)}")
    return wanted
