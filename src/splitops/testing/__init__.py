"""The tests that every backend passes, for packages that bring one of their own (needs pytest).

Describe the library once and inherit the suite in a test module::

    import pytest
    from splitops.testing import BackendSuite, Library


    class MyLibrary(Library):
        name = "mylib"

        def make(self, array):
            return mylib.asarray(array)

        def read(self, array):
            return array.to_numpy()


    class TestMyBackend(BackendSuite):
        @pytest.fixture
        def library(self):
            return MyLibrary()

The suite tests what the backend's ``capabilities`` declare. What they do not declare has to be rejected: a
backend that returns a wrong part, copies where it promises views or fills buffers that overlap fails.
"""

from __future__ import annotations

from splitops.testing.cases import CASES, FAULTS, Call, Fault
from splitops.testing.library import Library
from splitops.testing.suite import BackendSuite

__all__ = ["CASES", "FAULTS", "BackendSuite", "Call", "Fault", "Library"]
