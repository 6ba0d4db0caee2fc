"""onnx2tf: converts the model to a TensorFlow model, and runs that."""

import os
from pathlib import Path
from typing import Any

from splitops_compare.worker import CaseInput, catch_rejection

PACKAGES = ("onnx2tf", "tensorflow", "onnx")


def run(case: CaseInput) -> list[Any]:
    """Convert the model without changing the layouts of the inputs, and run it."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    import onnx2tf
    import tensorflow as tf

    with catch_rejection("load"):
        model = onnx2tf.convert(
            input_onnx_file_path=case.model,
            output_folder_path=str(Path(case.folder, "saved_model")),
            keep_shape_absolutely_input_names=list(case.inputs),
            disable_model_save=True,
            non_verbose=True,
        )
    with catch_rejection("run"):
        outputs = model([tf.constant(array) for array in case.inputs.values()])
        return [part.numpy() for part in (outputs if isinstance(outputs, list | tuple) else [outputs])]
