"""Ids of events hold what a client has seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groktime.api.routes.events import event_id, parse_id


@given(st.dictionaries(st.integers(1, 10**6), st.integers(0, 10**9), min_size=1, max_size=20))
def test_an_id_reads_back(seen: dict[int, int]) -> None:
    assert parse_id(event_id(seen)) == seen


@pytest.mark.parametrize("header", [None, "", "x", "1", "1.2.3", "1.2-", "a.b", "1.2--3.4"])
def test_an_id_that_is_not_ours_is_a_new_client(header: str | None) -> None:
    assert parse_id(header) is None
