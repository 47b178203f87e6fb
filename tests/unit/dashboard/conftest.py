"""A made-up cell for every figure."""

from __future__ import annotations

import pytest
from fixtures.made_up_answers import Cell, made_up_cell


@pytest.fixture
def cell() -> Cell:
    return made_up_cell()
