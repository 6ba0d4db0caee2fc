"""The rewrites by name, in the order in which they are applied."""

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
"""Changes that a caller can allow, keyed by name. Without them, outputs stay bit-identical."""

DEFAULT_LIMIT: Final = 1 << 16
"""Default maximum size of a constant that ``fold-constants`` creates, in bytes."""


@dataclass(frozen=True, slots=True)
class Rewriting:
    """A rewrite and the conditions of its use.

    Attributes:
        name: name that users pass. With underscores, it is the name of the function.
        summary: one-line description for users.
        roots: kinds of operators (names of ``Role``) on which the function is called.
        module: module of the function, in :mod:`splitops.models.simplify`.
        default: whether it is applied if the caller names no rewrites.
        openvino: whether it applies to OpenVINO models.
        undoes_fixes: whether it may restore a form of a split that ``fix`` has replaced for a runtime.
        final: whether it is applied only after no other rewrite applies.
        options: optional keyword arguments of the function.
    """

    name: str
    summary: str
    roots: tuple[str, ...]
    module: str
    default: bool = True
    openvino: bool = True
    undoes_fixes: bool = False
    final: bool = False
    options: tuple[str, ...] = ()

    @property
    def function(self) -> str:
        """Name of the Python function that implements the rewrite: :attr:`name` with underscores."""
        return self.name.replace("-", "_")

    def make_pass(self, **options: Any) -> SplitPass:
        """Return the rewrite as an onnx-ir pass. Options that it does not have are ignored."""
        from splitops.models.ops.operator import Role
        from splitops.models.simplify.passes import SplitPass

        module = import_module(f"splitops.models.simplify.{self.module}")
        taken = {name: options[name] for name in self.options if name in options}
        rewrite = partial(getattr(module, self.function), **taken)
        return SplitPass(self.name, frozenset(Role[root] for root in self.roots), rewrite)


_SPLIT, _CONCAT, _SLICE, _GATHER = ("SPLIT",), ("CONCAT",), ("SLICE",), ("GATHER",)
_DIVIDES: Final = ("SPLIT", "GATHER")

_concat: Final = partial(Rewriting, module="concat")
_constants: Final = partial(Rewriting, module="constants")
_moves: Final = partial(Rewriting, module="moves")
_parts: Final = partial(Rewriting, module="parts")
_prevent_fusion: Final = partial(Rewriting, module="prevent_fusion")
_sequences: Final = partial(Rewriting, module="sequences")
_slices: Final = partial(Rewriting, module="slices")
_weights: Final = partial(Rewriting, module="weights")

_REWRITES: Final = (
    _parts("remove-whole-part", "replace a split that has one non-empty part with its data", _SPLIT),
    _constants(
        "fold-constants",
        "replace parts of constants and of known shapes with constants",
        _SPLIT,
        options=("limit",),
    ),
    _constants(
        "split-initializers", "replace a constant that only a split uses with one constant per part", _SPLIT
    ),
    _parts("fold-empty-parts", "replace used empty parts with constants", _SPLIT),
    _sequences(
        "replace-sequences",
        "replace uses of the sequence of a SplitToSequence with uses of its parts or data",
        ("SEQUENCE",),
        openvino=False,
        undoes_fixes=True,
    ),
    _slices("remove-whole-slice", "replace a Slice of whole axes with its data", _SLICE),
    _slices("merge-slices", "merge a Slice into the Slices that use it, if nothing else does", _SLICE),
    _slices(
        "replace-strided-slices",
        "replace Slices in steps of n, from each of the first n positions, with Reshape, Split and Squeezes",
        _SLICE,
        undoes_fixes=True,
    ),
    _slices(
        "replace-slices",
        "replace Slices that together cover an axis with a Split",
        _SLICE,
        undoes_fixes=True,
    ),
    _slices(
        "replace-gathers",
        "replace Gathers of adjacent positions that together cover an axis with a Split",
        _GATHER,
        undoes_fixes=True,
    ),
    _slices(
        "replace-scalar-gathers",
        "replace Gathers of each position of an axis with a Split and Squeezes (more nodes; off by default)",
        _GATHER,
        default=False,
        undoes_fixes=True,
    ),
    _concat("remove-single-concat", "replace a Concat of one value with that value", _CONCAT),
    _concat(
        "merge-concats",
        "merge a Concat into the Concat on the same axis that uses it, if nothing else does",
        _CONCAT,
    ),
    _concat(
        "cancel-concat-split",
        "replace parts of a split Concat with its inputs, if they have the same boundaries",
        _SPLIT,
    ),
    _concat("cancel-split-concat", "remove splits of parts that are concatenated in order", _CONCAT),
    _parts(
        "merge-splits",
        "merge a split of a part into the split that produces it, on the same axis",
        _SPLIT,
        undoes_fixes=True,
    ),
    _moves(
        "hoist-splits", "hoist a split above Reshapes and Transposes, if that needs fewer nodes", _DIVIDES
    ),
    _moves(
        "merge-reshapes",
        "replace a chain of Reshapes and Transposes with a shorter equivalent chain",
        ("RESHAPE", "TRANSPOSE"),
    ),
    _weights(
        "split-weights",
        "replace a split product with products of parts of the constant weights; floats only if allowed",
        _DIVIDES,
        options=("allow",),
    ),
    _parts(
        "remove-unused-parts",
        "remove unused parts; replace a split that has one used part with a Slice",
        _SPLIT,
        undoes_fixes=True,
    ),
    _parts(
        "shorten-lengths", "replace lengths with an equivalent number of parts", _SPLIT, undoes_fixes=True
    ),
    _prevent_fusion(
        "set-equal-lengths",
        "set the lengths of splits that onnxruntime would merge wrongly",
        _SPLIT,
        openvino=False,
        final=True,
    ),
    _prevent_fusion(
        "prevent-fusion",
        "rewrite nodes around a split that OpenVINO would fuse wrongly",
        ("SPLIT", "SLICE", "TRANSPOSE"),
        final=True,
    ),
)

REWRITES: Final[Mapping[str, Rewriting]] = MappingProxyType({row.name: row for row in _REWRITES})
"""All rewrites, keyed by name, in the order in which they are tried on a node."""


def select_rewrites(names: Iterable[str] | None, *, keep_fixes: bool = False) -> tuple[Rewriting, ...]:
    """Return the named rewrites in the order of the registry, or the defaults if ``names`` is None.

    With ``keep_fixes``, the defaults exclude rewrites that may undo a fix.
    """
    if names is None:
        rows = (row for row in REWRITES.values() if row.default)
        return tuple(row for row in rows if not (keep_fixes and row.undoes_fixes))
    wanted = _check_names(names, REWRITES, "rewrite")
    return tuple(row for row in REWRITES.values() if row.name in wanted)


def check_allowed(names: Iterable[str]) -> frozenset[str]:
    """Return the names as a set. Raise ModelError unless :data:`ALLOWANCES` has all of them."""
    return _check_names(names, ALLOWANCES, "allowance")


def _check_names(names: Iterable[str], allowed: Mapping[str, object], what: str) -> frozenset[str]:
    try:
        wanted = frozenset([names] if isinstance(names, str) else names)
    except TypeError as error:
        raise ModelError(f"{shown(names)} is not a list of {what} names: use {', '.join(allowed)}") from error
    for name in sorted(map(str, wanted)):
        if name not in allowed:
            raise ModelError(f"unknown {what} {shown(name)}: use {', '.join(allowed)}")
    return wanted
