"""Read, annotate, edit and write models as graphs of onnx-ir nodes, for both formats."""
