"""Model files, ONNX and OpenVINO IR: read with checks against hostile content, and written atomically."""
