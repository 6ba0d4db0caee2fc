"""The suite of ``splitops.testing`` on every library that is installed; an absent one is skipped by name."""

from __future__ import annotations

import pytest
from backend_libraries import LIBRARIES

from splitops.backends import ARRAY_API, BACKENDS, DLPACK
from splitops.testing import BackendSuite, Library

_MADE: dict[str, Library] = {}


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Library:
    name = request.param
    if name not in _MADE:
        _MADE[name] = LIBRARIES[name]()
    return _MADE[name]


class TestEveryBackend(BackendSuite):
    def test_the_library_is_served_by_its_own_backend(self, library: Library) -> None:
        assert library.backend.name == library.name.removesuffix(".DataArray")

    def test_a_backend_declares_what_the_table_says(self, library: Library) -> None:
        entries = {entry.name: entry for entry in (*BACKENDS, ARRAY_API, DLPACK)}
        assert library.backend.capabilities is entries[library.backend.name].capabilities


def test_every_backend_is_in_the_suite() -> None:
    assert {entry.name for entry in (*BACKENDS, ARRAY_API, DLPACK)} <= set(LIBRARIES)
