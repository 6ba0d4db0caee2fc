"""The layers of networks: what OpenVINO and ONNX say alike, row by row.

Layers that move data around splits are movers, which other tools read too; conversion alone reads these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from splitops.models import movers
from splitops.models.convert.layers.arranging import ARRANGING
from splitops.models.convert.layers.images import IMAGES
from splitops.models.convert.layers.positions import POSITIONS
from splitops.models.convert.layers.products import PRODUCTS
from splitops.models.convert.layers.recurrent import RECURRENT
from splitops.models.convert.layers.reductions import REDUCTIONS
from splitops.models.convert.layers.windows import WINDOWS
from splitops.models.formats.openvino import Layer
from splitops.models.movers.elementwise import ELEMENTWISE
from splitops.models.movers.form import LayerForm, Shared
from splitops.models.movers.mover import Mover

__all__ = ["BY_OPERATOR", "FORMS", "LayerForm", "Shared", "row_of"]

FORMS: Final[tuple[LayerForm | Shared, ...]] = (
    *ELEMENTWISE,
    *WINDOWS,
    *PRODUCTS,
    *REDUCTIONS,
    *POSITIONS,
    *ARRANGING,
    *IMAGES,
    *RECURRENT,
)
"""Every row."""

BY_OPERATOR: Final[Mapping[str, Mover | Shared]] = {
    **{form.onnx: form for form in FORMS if isinstance(form, Shared)},
    **movers.BY_OPERATOR,
}
"""The rows that say both directions, by ONNX operator: movers too."""

_BY_LAYER: Final[Mapping[tuple[str, str], LayerForm | Shared]] = {
    (form.layer, version): form for form in FORMS for version in form.versions
}


def row_of(layer: Layer) -> Mover | LayerForm | Shared | None:
    """Return the row of a layer; None where there is none for its type and version."""
    return movers.mover_of(layer) or _BY_LAYER.get((layer.type, layer.version))
