"""Run ONNX models on onnx's reference evaluator, with splitops' own split operators."""
