"""ONNX models run by onnx's reference evaluator, with the split family ours everywhere."""
