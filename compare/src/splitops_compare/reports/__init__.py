"""Writes a page, SARIF, folders that reproduce a finding, ONNX tests, and differences between reports."""
