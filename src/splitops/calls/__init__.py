"""Calls of operators on arrays: make plans from the arguments, and run the plans.

The main modules, each using only earlier ones: :mod:`.arguments` (arguments for binding), :mod:`.symbolic`
(sizes that a library traces), :mod:`.plan`, :mod:`.execution`, :mod:`.plan_cache` (cached calls),
:mod:`.torch_compile` and :mod:`.functions` (common code of the ONNX and OpenVINO functions). :mod:`.node`
runs single split nodes of models.
"""
