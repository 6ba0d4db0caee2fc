"""The suite must be able to fail: each of these backends does one thing wrong, and the sound one nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest

# An array library of one class around NumPy, its backend, and the suite; a defect is in place of `pass`.
MODULE = """
import numpy as np
import pytest

from splitops.backends import Capabilities, register
from splitops.backends.numpy import BACKEND as NUMPY
from splitops.errors import ArrayError
from splitops.testing import BackendSuite, Library


class Boxed:
    def __init__(self, array):
        self.array = array
        self.dtype = array.dtype

    def __getitem__(self, key):
        return Boxed(self.array[key])


class Backend:
    name = "boxed"
    capabilities = Capabilities(views=True, copies=True, out=True, read_only=True)
    symbols = ()

    def get_shape(self, data):
        return data.array.shape

    def get_element_type(self, data):
        return NUMPY.get_element_type(data.array)

    def get_dtype_name(self, data):
        return NUMPY.get_dtype_name(data.array)

    def to_numpy(self, data):
        return data.array

    def make_views(self, plan, data):
        return tuple(map(Boxed, NUMPY.make_views(plan, data.array)))

    def make_copies(self, plan, data):
        return tuple(map(Boxed, NUMPY.make_copies(plan, data.array)))

    def fill(self, plan, data, out):
        if not all(isinstance(buffer, Boxed) for buffer in out):
            raise ArrayError("a buffer is not boxed")
        NUMPY.fill(plan, data.array, [buffer.array for buffer in out])


class Broken(Backend):
    {defect}


register(Boxed, Broken())


class BoxedLibrary(Library):
    name = "boxed"

    def make(self, array):
        return Boxed(array.copy())

    def read(self, array):
        return array.array

    def make_layouts(self, array):
        return Boxed(np.asfortranarray(array)), Boxed(np.repeat(array, 2, 1)[:, ::2])

    def may_share_memory(self, one, other):
        return np.shares_memory(one.array, other.array)

    def is_contiguous(self, array):
        return array.array.flags.c_contiguous

    def make_read_only(self, array):
        data = Boxed(array.copy())
        data.array.flags.writeable = False
        return data

    def is_writeable(self, array):
        return array.array.flags.writeable


class TestBoxed(BackendSuite):
    @pytest.fixture
    def library(self):
        return BoxedLibrary()
"""

DEFECTS = {
    "the last part is lost": "make_views = lambda self, plan, data: super().make_views(plan, data)[:-1]",
    "parts come in reverse": "make_views = lambda self, plan, data: super().make_views(plan, data)[::-1]",
    "parts begin one too late": (
        "make_views = lambda self, plan, data: "
        "super().make_views(plan, Boxed(np.roll(data.array, -1, plan.axis)))"
    ),
    "views are copies": "make_views = lambda self, plan, data: super().make_copies(plan, data)",
    "copies are views": "make_copies = lambda self, plan, data: super().make_views(plan, data)",
    "copies are not contiguous": (
        "make_copies = lambda self, plan, data: tuple("
        "Boxed(np.array(part.array, order='F')) for part in super().make_views(plan, data))"
    ),
    "a whole copy is the data": (
        "make_copies = lambda self, plan, data: ("
        "(data,) if len(plan.sizes) == 1 and not plan.squeeze else super().make_copies(plan, data))"
    ),
    "parts are of another type": "make_views = lambda self, plan, data: NUMPY.make_views(plan, data.array)",
    "parts are of another dtype": (
        "make_views = lambda self, plan, data: tuple("
        "Boxed(part.array.astype(object)) for part in super().make_views(plan, data))"
    ),
    "the axis is kept": (
        "make_views = lambda self, plan, data: super().make_views("
        "type(plan)(plan.shape, plan.axis, plan.offsets, plan.sizes, False), data)"
    ),
    "views can be written": (
        "make_views = lambda self, plan, data: super().make_views(plan, Boxed(_writeable(data.array)))"
    ),
    "nothing is filled": "fill = lambda self, plan, data, out: None",
    "out is not checked": (
        "fill = lambda self, plan, data, out: [np.copyto(o.array, p.array, casting='unsafe') "
        "for o, p in zip(out, super(Broken, self).make_views(plan, data)) if o]"
    ),
    "data are overwritten": (
        "make_views = lambda self, plan, data: "
        "[super(Broken, self).make_views(plan, data), data.array.fill(0)][0]"
    ),
    "every element is a float": (
        "get_element_type = lambda self, data: NUMPY.get_element_type(np.zeros(1, np.float32))"
    ),
    "lengths are rounded away": "to_numpy = lambda self, data: np.zeros_like(data.array)",
    "a compiler is declared and not there": (
        "capabilities = Capabilities(views=True, copies=True, out=True, read_only=True, compiled=('jit',))"
    ),
    "the shape is reversed": "get_shape = lambda self, data: data.array.shape[::-1]",
}


COMPILED = """

class Compiled(BoxedLibrary):
    element_types = tuple(name for name in Library.element_types if name != "int32")

    def get_compilers(self):
        return {"jit": lambda run, data: run(data), "other": lambda *_: pytest.skip("is not installed")}


class TestBoxed(BackendSuite):
    @pytest.fixture
    def library(self):
        return Compiled()
"""
"""A library of few types, one of whose compilers is not installed."""


LAZY = """
import dask.array
import pytest

from splitops.backends import register
from splitops.backends.dask import BACKEND
from backend_libraries import Dask
from splitops.testing import BackendSuite


class Broken(type(BACKEND)):
    def make_views(self, plan, data):
        data.compute()
        return super().make_views(plan, data)


register(dask.array.Array, Broken())


class TestBroken:
    test_parts = BackendSuite.test_the_parts_are_the_operators_own

    @pytest.fixture
    def library(self):
        return Dask()
"""

Outcomes = Mapping[str, Counter[str]]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Run the suite on every backend here, in one process of its own, and count outcomes by backend."""
    folder = tmp_path_factory.mktemp("suites")
    writeable = "def _writeable(array):\n    return array if array.flags.writeable else array.copy()\n"
    for index, defect in enumerate(("pass", *DEFECTS.values())):
        # `super()` needs a method's own cell, which a lambda in a class body has not.
        body = defect.replace("super().", "super(Broken, self).")
        (folder / f"test_{index}.py").write_text(writeable + MODULE.replace("{defect}", body))
    capabilities = (
        "Capabilities(views=True, copies=True, out=True, read_only=True, compiled=('jit', 'other'))"
    )
    module = MODULE.replace("{defect}", f"capabilities = {capabilities}") + COMPILED
    (folder / "test_compiled.py").write_text(writeable + module)
    if find_spec("dask") is not None:
        (folder / "test_lazy.py").write_text(LAZY)
    report = folder / "report.xml"
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--tb=no",
        "-p",
        "no:cacheprovider",
        f"--junitxml={report}",
    ]
    subprocess.run([*command, str(folder)], env=os.environ | {"PYTHONPATH": path}, cwd=folder, check=False)
    counted: dict[str, Counter[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        result = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")
        counted.setdefault(case.get("classname", "").partition(".")[0], Counter())[result] += 1
    return counted


def test_the_sound_backend_passes(outcomes: Outcomes) -> None:
    assert outcomes["test_0"]["passed"] > 80
    assert not outcomes["test_0"].keys() & {"failure", "error"}


def test_what_a_sound_backend_lacks_is_skipped(outcomes: Outcomes) -> None:
    found = outcomes["test_compiled"]
    assert not found.keys() & {"failure", "error"}
    assert found["skipped"] > outcomes["test_0"]["skipped"]


@pytest.mark.parametrize("name", DEFECTS)
def test_a_broken_backend_fails(outcomes: Outcomes, name: str) -> None:
    counts = outcomes[f"test_{list(DEFECTS).index(name) + 1}"]
    assert counts["failure"] > 0
    assert counts["error"] == 0


def test_a_lazy_backend_that_computes_fails(outcomes: Outcomes) -> None:
    pytest.importorskip("dask")
    assert outcomes["test_lazy"]["failure"] > 0
