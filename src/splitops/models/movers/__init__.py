"""Operators that move data or compute sizes, alike in ONNX and OpenVINO: all that the tools know of each."""
