"""Test suite for backends, which packages with their own backends can run. It needs pytest.

Describe the array library, and inherit the suite in a test module::

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

The suite tests the views, copies, ``out=``, gradients and compilers that the backend's ``capabilities``
declare. If ``out=`` is not declared, it must be rejected. A backend fails if it returns a wrong part, copies
instead of returning declared views, or fills overlapping buffers.
"""

from __future__ import annotations

from splitops.testing.cases import CASES, FAULTS, Call, InvalidCall
from splitops.testing.library import Library
from splitops.testing.suite import BackendSuite

__all__ = ["CASES", "FAULTS", "BackendSuite", "Call", "InvalidCall", "Library"]
