"""The rewrites by name, and the rounds in which they are applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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
        module: the module of its ONNX pass.
        default: whether it is applied where no rewrites are named.
        openvino: whether OpenVINO models have it too.
        final: whether it looks only at what no other rewrite changes any more.
        options: what its pass can be told.
    """

    name: str
    summary: str
    module: str
    default: bool = True
    openvino: bool = True
    final: bool = False
    options: tuple[str, ...] = ()

    @property
    def pass_name(self) -> str:
        """The class of its ONNX pass."""
        return f"{self.name.title().replace('-', '')}Pass"

    def make_pass(self, **options: Any) -> SplitPass:
        """Return the onnx-ir pass, with those of the options that it takes."""
        module = import_module(f"splitops.models.simplify.{self.module}")
        taken = {name: options[name] for name in self.options if name in options}
        made: SplitPass = getattr(module, self.pass_name)(**taken)
        return made


_ROWS: Final = (
    Rewriting("whole-part", "a split into one part, or one part and empty ones, is its data", "parts"),
    Rewriting(
        "fold-constants",
        "parts of constants and of known shapes are constants",
        "constants",
        options=("limit",),
    ),
    Rewriting(
        "split-initializers",
        "a constant that only a split reads becomes a constant for each part",
        "constants",
    ),
    Rewriting("empty-parts", "empty parts that are read are constants", "parts"),
    Rewriting(
        "sequence-reads",
        "what reads the sequence of a SplitToSequence reads parts, or the data",
        "sequences",
        openvino=False,
    ),
    Rewriting("whole-slice", "a Slice that takes whole axes is its data", "slices"),
    Rewriting("merged-slices", "a Slice that only Slices read becomes part of each of them", "slices"),
    Rewriting(
        "strided-slices",
        "Slices in n steps, from each of the first n positions, are a Reshape, a Split and Squeezes",
        "slices",
    ),
    Rewriting("slices", "Slices that together are a whole axis are one Split", "slices"),
    Rewriting(
        "gathers", "Gathers of neighbouring positions that together are a whole axis are one Split", "slices"
    ),
    Rewriting(
        "scalar-gathers",
        "Gathers of each position of an axis are one Split and Squeezes: more nodes, not by default",
        "slices",
        default=False,
    ),
    Rewriting("sole-concat", "a Concat of one value is the value", "concat"),
    Rewriting(
        "nested-concats", "a Concat that only another one on the same axis reads becomes part of it", "concat"
    ),
    Rewriting(
        "concat-split", "what is split at the boundaries where it was concatenated is neither", "concat"
    ),
    Rewriting("split-concat", "parts that are concatenated in their order are not split", "concat"),
    Rewriting(
        "nested-splits",
        "a split of a part, on the same axis, becomes one with the split that makes it",
        "parts",
    ),
    Rewriting(
        "moved-splits",
        "a split behind Reshapes and Transposes is in front of them, where that is fewer nodes",
        "moves",
    ),
    Rewriting("merged-moves", "Reshapes and Transposes in a row are as few as move the same", "moves"),
    Rewriting(
        "split-weights",
        "a split of a product with constant weights is products by their parts; of floats if allowed",
        "weights",
        options=("allow",),
    ),
    Rewriting(
        "unused-parts", "parts that nobody reads are not made; a single part that is read is a Slice", "parts"
    ),
    Rewriting("shortest-form", "lengths that follow from the number of parts are not stated", "parts"),
    Rewriting(
        "stated-lengths",
        "splits that onnxruntime would take for one another state their lengths",
        "parts",
        openvino=False,
        final=True,
    ),
    Rewriting(
        "kept-apart",
        "what OpenVINO would fuse wrongly with a split is written so that it does not",
        "apart",
        final=True,
    ),
)

REWRITES: Final[Mapping[str, Rewriting]] = MappingProxyType({row.name: row for row in _ROWS})
"""Every rewrite by name, in the order in which they are tried at a node."""


def chosen(names: Iterable[str] | None) -> tuple[Rewriting, ...]:
    """Return the rewrites of some names, in the order of the registry; None is those by default.

    Raises:
        ModelError: there is no rewrite of a name.
    """
    if names is None:
        return tuple(row for row in REWRITES.values() if row.default)
    wanted = _known(names, REWRITES, "rewrite")
    return tuple(row for row in REWRITES.values() if row.name in wanted)


def allowed(names: Iterable[str]) -> frozenset[str]:
    """Return what some names, of :data:`ALLOWANCES`, allow.

    Raises:
        ModelError: there is no allowance of a name.
    """
    return _known(names, ALLOWANCES, "allowance")


def _known(names: Iterable[str], rows: Mapping[str, object], what: str) -> frozenset[str]:
    try:
        wanted = frozenset([names] if isinstance(names, str) else names)
    except TypeError as error:
        raise ModelError(f"{shown(names)} are not names of {what}s") from error
    for name in sorted(map(str, wanted)):
        if name not in rows:
            raise ModelError(f"there is no {what} {shown(name)}; the {what}s are {', '.join(rows)}")
    return wanted
