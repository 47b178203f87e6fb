"""What a report says of the offset: order is found, the offset is chosen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from groktime.service.report.tables import offset_blocks, offset_sentences, residual_error


def row(median: float | None, rho: float | None, n: int = 10) -> Any:
    return SimpleNamespace(varied="x", n=n, n_total=10, median_residual=median, std=0.1, rho=rho)


def cell(prime: int, cross: float, onset: float, level: float | None = 0.95) -> Any:
    return SimpleNamespace(
        prime=prime,
        setting={},
        p_cross=cross,
        p_cross_low=cross / 10**0.0196,
        p_cross_high=cross * 10**0.0196,
        p_onset=onset,
        p_onset_low=onset / 10**0.0392,
        p_onset_high=onset * 10**0.0392,
        p_onset_level=level,
        residual=-0.3 + 0.01 * prime,
    )


def content(rows: list[Any], robust: list[Any], paper: list[Any]) -> Any:
    by = {
        "robust": SimpleNamespace(cells=robust, level=0.95),
        "paper": SimpleNamespace(cells=paper, level=0.95),
    }
    return SimpleNamespace(
        name="made",
        offsets=rows,
        by=lambda convention: by[convention[0]],
        answer=by["robust"],
        reference=None,
    )


def test_the_offset_is_told_apart_from_the_order_and_from_the_estimators() -> None:
    ours = [cell(p, 1e5, 5e4) for p in (2, 3, 5, 7)]
    theirs = [cell(p, 1e5 * 10**-0.02, 5e4 * 10**0.1) for p in (2, 3, 5, 7)]
    rows = [row(-0.3, 0.98), row(0.03, 0.95), row(-0.9, 0.1, n=2)]
    order, estimators, spread = offset_sentences(content(rows, ours, theirs))
    assert "from −0.3 to +0.03 dex" in order.replace("−0.300", "−0.3").replace("+0.030", "+0.03")
    assert "between 0.95 and 0.98" in order, "a rule with two cells says nothing"
    assert "+0.1" in estimators
    assert "−0.02" in estimators
    assert "Residuals spread by" in spread


def test_the_error_of_a_residual_joins_both_intervals_and_a_bracket_is_uniform() -> None:
    assert residual_error(cell(2, 1e5, 5e4), 0.95) == pytest.approx(
        (0.01**2 + 0.02**2) ** 0.5, rel=1e-3
    )
    bracket = residual_error(cell(2, 1e5, 5e4, None), 0.95)
    assert bracket == pytest.approx((0.01**2 + 0.0784**2 / 12) ** 0.5, rel=1e-3)


def test_a_suite_without_cells_has_no_table() -> None:
    assert offset_blocks(content([row(None, None, n=0)], [], [])) == []
