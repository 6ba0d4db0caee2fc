"""Safe repairs of ONNX models: the outputs stay what they are, and more runtimes take the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import numpy as np
import onnx_ir as ir
from onnx import ModelProto

from splitops.errors import ModelError, Rule, RuleError, Where
from splitops.models import is_openvino
from splitops.models.check.checking import find_limits
from splitops.models.check.conditions import Surroundings
from splitops.models.check.profiles import LIMITS, known_targets
from splitops.models.convert.graph_arithmetic import lengths_of_size
from splitops.models.convert.onnx_to_onnx import finished
from splitops.models.graph.onnx import Tape
from splitops.models.graph.onnx_editor import OnnxEditor
from splitops.models.graph.onnx_model import copy_of, editable_copy, name_parts
from splitops.models.infer import Visit, load_well_formed
from splitops.models.infer.onnx_walk import Walk
from splitops.operators.schema import Given
from splitops.sizes.arithmetic import Division, part_sizes
from splitops.sizes.rules import SizeRule

if TYPE_CHECKING:
    from splitops.models import AnyModel

__all__ = ["Repair", "Unbind", "repair"]

_MAX_LENGTHS: Final = 1 << 16
_PASSES: Final = 8


class Unbind(StrEnum):
    """What chunks of 1 with keepdims = 0 are to mean."""

    AS_WRITTEN = "as-written"
    AS_PYTORCH = "as-pytorch"


@dataclass(frozen=True, slots=True)
class Repair:
    """One change that was made.

    Attributes:
        code: the code of the finding that it answers.
        where: the place of the node.
        text: what was done.
    """

    code: str
    where: Where
    text: str

    def __str__(self) -> str:
        return f"{self.text} [{self.code}] ({self.where})"


class Repaired(NamedTuple):
    """A repaired copy of a model, and what was done to it."""

    model: ModelProto
    repairs: tuple[Repair, ...]


def repair(
    model: AnyModel,
    targets: str | Iterable[str] = (),
    *,
    unbind: str | Unbind | None = None,
    allow_links: bool = False,
) -> Repaired:
    """Apply the safe repairs to a copy of an ONNX model.

    Args:
        model: path of a ``.onnx`` file, ``onnx.ModelProto`` or ``onnx_ir.Model``.
        targets: the runtimes whose limits are repaired, a string is one of them; none are all of them.
        unbind: what SplitToSequence with chunks of 1 and keepdims = 0 is to mean, which PyTorch exports for a
            scripted ``unbind``: ``"as-written"`` keeps the axis, as the text says, ``"as-pytorch"`` drops it,
            as PyTorch and onnxruntime do. None leaves such a site as it is.
        allow_links: of a path, whether links to the model's other files may lead out of its folder, as in
            :func:`splitops.load`.

    Returns:
        The new model and the repairs. Outputs of the model are unchanged, but for ``unbind="as-pytorch"``;
        where it was invalid, it has become valid in the one way that its declared outputs allow.

    Raises:
        ModelError: the model cannot be read, or is OpenVINO IR; or ``unbind`` is another word.
        ArrayError: a target has no profile.

    Examples:
        >>> import onnx.parser
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 9, opset_import: ["": 18]>
        ...     g (float[5] x) => (float[n] a, float[m] b, float[k] c, float[l] d) {
        ...         a, b, c, d = Split<num_outputs = 4>(x) }''')
        >>> for done in repair(model, ["onnxruntime"]).repairs:
        ...     print(done.text)
        num_outputs = 4 became the lengths [2, 2, 1, 0]
    """
    targets = known_targets(targets)
    if unbind is not None and unbind not in tuple(Unbind):
        raise ModelError(f"unbind is {unbind!r}, not {' or '.join(map(repr, map(str, Unbind)))}")
    meaning = None if unbind is None else Unbind(unbind)
    loaded, where = load_well_formed(model, allow_links=allow_links)
    if is_openvino(loaded):
        raise ModelError("repairs are made to ONNX models; this is OpenVINO IR", where)
    original = cast(ModelProto, loaded)
    edited = editable_copy(original, where, name_unread=False)
    repairs: list[Repair] = []
    # One repair can be what another one needs: all outputs declared before their lengths are stated.
    for _ in range(_PASSES):
        found = _one_pass(edited, where, targets, meaning)
        repairs += found
        if not found:
            break
    if not repairs:
        return Repaired(copy_of(original), ())
    name_parts(edited)
    return Repaired(finished(edited, original), tuple(repairs))


def _one_pass(model: ir.Model, where: Where, targets: Sequence[str], unbind: Unbind | None) -> list[Repair]:
    visits: list[Visit] = []
    Walk(model, where, visits.append).run()
    surroundings = Surroundings.of(model)
    mender = _Mender(OnnxEditor(model, where), unbind)
    repairs: list[Repair] = []
    done: set[Where] = set()
    for visit in visits:
        for code, name in _wanted(visit, surroundings, targets):
            # A node that has changed is looked at again in the next pass.
            text = _REPAIRS[name](mender, visit) if visit.where not in done else None
            if text is not None:
                done.add(visit.where)
                repairs.append(Repair(code, visit.where, text))
    return repairs


def _wanted(visit: Visit, model: Surroundings, targets: Sequence[str]) -> Iterator[tuple[str, str]]:
    if isinstance(visit.error, RuleError) and visit.error.rule is Rule.LENGTHS_MISSING:
        yield str(visit.error.rule), "state-number"
    for index, _ in find_limits(visit, model):
        limit = LIMITS[index]
        if limit.repair is not None and (not targets or limit.runtime in targets):
            yield limit.code, limit.repair


class _Mender:
    """The model under repair, and what its user has decided."""

    def __init__(self, editor: OnnxEditor, unbind: Unbind | None) -> None:
        self.editor = editor
        self.unbind = unbind

    def name_outputs(self, node: ir.Node) -> None:
        """Give the outputs of a node names that have none."""
        stem = f"{_stem(node)}_unused"
        for value in node.outputs:
            if not value.name:
                value.name = self.editor.names.fresh(stem)


def _stem(node: ir.Node) -> str:
    return node.name or next((value.name for value in node.outputs if value.name), "split")


def _state_number(mender: _Mender, visit: Visit) -> str | None:
    name = _count_attribute(visit)
    if name is None or not visit.outputs:
        return None
    number = len(visit.outputs)
    visit.node.attributes[name] = ir.AttrInt64(name, number)
    return f"added {name} = {number}"


def _count_attribute(visit: Visit) -> str | None:
    return None if visit.schema is None else visit.schema.count_attribute


def _drop_empty_name(mender: _Mender, visit: Visit) -> str | None:
    mender.editor.set_inputs(visit.node, visit.node.inputs[:1])
    return "left out the input that is named ''"


def _name_outputs(mender: _Mender, visit: Visit) -> str | None:
    mender.name_outputs(visit.node)
    return "named the outputs that were named ''"


def _declare_outputs(mender: _Mender, visit: Visit) -> str | None:
    number = visit.attributes.get(_count_attribute(visit) or "")
    if not isinstance(number, int) or number > _MAX_LENGTHS:
        return None
    missing = number - len(visit.outputs)
    visit.node.resize_outputs(number)
    mender.name_outputs(visit.node)
    return f"declared {missing} more outputs, {number} in all"


def _drop_keepdims(mender: _Mender, visit: Visit) -> str | None:
    row = visit.schema
    if row is None or row.keepdims is None:
        return None
    visit.node.attributes.pop(row.keepdims.name, None)
    return f"left out {row.keepdims.name}, which has no meaning beside {row.lengths[0].name!r}"


def _state_unbind(mender: _Mender, visit: Visit) -> str | None:
    if mender.unbind is Unbind.AS_WRITTEN:
        return _drop_keepdims(mender, visit)
    if mender.unbind is Unbind.AS_PYTORCH:
        mender.editor.set_inputs(visit.node, visit.node.inputs[:1])
        return "left out the input 'split', so that the parts lose the axis"
    return None


def _explicit_lengths(mender: _Mender, visit: Visit) -> str | None:
    binding, row, node = visit.binding, visit.schema, visit.node
    if binding is None or binding.division is None or binding.axis is None or row is None:
        return None
    if mender.editor.in_function(node):
        return None  # each call may have another size
    number = binding.division.count
    if number != len(visit.outputs) or number > _MAX_LENGTHS:
        return None
    name = row.count_attribute or ""
    stated = f"{name} = {number}" if name in visit.attributes else f"{number} equal parts"
    size = None if binding.data.shape is None else binding.data.shape[binding.axis]
    if not isinstance(size, int):
        return _computed_lengths(mender, visit, binding.division, binding.axis)
    lengths = part_sizes(binding.division, size, number)
    node.attributes.pop(name, None)
    if row.lengths[0].given is Given.ATTRIBUTE:
        node.attributes[row.lengths[0].name] = ir.AttrInt64s(row.lengths[0].name, lengths)
    else:
        made = mender.editor.constant(np.array(lengths, np.int64), node)
        mender.editor.set_inputs(node, [node.inputs[0], made])
    shown = ", ".join(map(str, lengths[:8])) + (", ..." if number > 8 else "")
    return f"{stated} became the lengths [{shown}]"


def _computed_lengths(mender: _Mender, visit: Visit, division: Division, axis: int) -> str | None:
    """State lengths computed from the size of the axis, where the version takes them as an input."""
    row, node = visit.schema, visit.node
    if division.rule is not SizeRule.EVEN or row is None or row.lengths[0].given is not Given.INPUT:
        return None
    tape = Tape(row.since_version, mender.editor.names, _stem(node))
    lengths = lengths_of_size(division, tape.size(node.inputs[0], tape.integers([axis])), tape)
    for made in tape.nodes:
        mender.editor.insert(node, made)
    mender.editor.set_inputs(node, [node.inputs[0], lengths])
    return f"{division.count} equal parts became lengths computed from the size of the axis"


def _attribute_lengths(mender: _Mender, visit: Visit) -> str | None:
    division = visit.binding.division if visit.binding is not None else None
    if division is None or division.lengths is None or not visit.constants[1]:
        return None
    mender.editor.set_inputs(visit.node, visit.node.inputs[:1])
    visit.node.attributes["split"] = ir.AttrInt64s("split", division.lengths)
    return "the lengths became the attribute 'split'"


_REPAIRS: Final[dict[str, Callable[[_Mender, Visit], str | None]]] = {
    "state-number": _state_number,
    "drop-empty-name": _drop_empty_name,
    "name-outputs": _name_outputs,
    "declare-outputs": _declare_outputs,
    "drop-keepdims": _drop_keepdims,
    "state-unbind": _state_unbind,
    "explicit-lengths": _explicit_lengths,
    "attribute-lengths": _attribute_lengths,
}
"""The repairs by the name that limits give them."""
