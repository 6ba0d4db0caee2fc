"""Read model files (ONNX and OpenVINO IR), which may be hostile, and write them atomically."""
