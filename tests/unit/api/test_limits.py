"""The bucket of heavy questions per client."""

from __future__ import annotations

import pytest

from api.limits import HeavyWork, Limits
from api.problems import ApiError


def test_a_burst_is_allowed_then_a_rate() -> None:
    now = [0.0]
    heavy = HeavyWork(Limits(heavy_burst=3, heavy_per_second=2.0), clock=lambda: now[0])
    for _ in range(3):
        heavy.take("a")
    with pytest.raises(ApiError) as refused:
        heavy.take("a")
    assert refused.value.status == 429
    heavy.take("b")  # another client has a bucket of its own
    now[0] = 0.5
    heavy.take("a")
    with pytest.raises(ApiError):
        heavy.take("a")
