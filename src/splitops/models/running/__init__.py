"""Run models on the reference evaluator of ONNX, with the split operators of splitops."""
