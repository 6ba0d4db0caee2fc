"""Models as graphs of onnx-ir nodes, whatever file they came from: walked, edited, written back."""
