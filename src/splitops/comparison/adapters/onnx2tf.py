"""onnx2tf: the model made one of TensorFlow, and run there."""

import os
from pathlib import Path
from typing import Any

from splitops.comparison.worker import Question, rejecting

PACKAGES = ("onnx2tf", "tensorflow", "onnx")


def answer(case: Question) -> list[Any]:
    """Convert the model, with the layouts of the inputs kept, and run it."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    import onnx2tf
    import tensorflow as tf

    with rejecting("load"):
        model = onnx2tf.convert(
            input_onnx_file_path=case.model,
            output_folder_path=str(Path(case.folder, "saved_model")),
            keep_shape_absolutely_input_names=list(case.inputs),
            disable_model_save=True,
            non_verbose=True,
        )
    with rejecting("run"):
        found = model([tf.constant(array) for array in case.inputs.values()])
        return [part.numpy() for part in (found if isinstance(found, list | tuple) else [found])]
