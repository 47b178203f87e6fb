"""Random labels beside permuted ones on the task's own inputs: which crossing, how far apart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from groktime.service.report.document import Paragraph, Table
from groktime.service.report.labels import clocks, label_blocks, label_sentences

GEN = {32: 300.0, 64: 200.0, 128: 150.0}


def answer(prime: int, mem: dict[int, float | None], cross: float | None) -> Any:
    status = "crossed" if cross else "mem_always_slower"
    curves = SimpleNamespace(
        t_mem=[SimpleNamespace(width=w, params=w * w, value=v) for w, v in mem.items()],
        t_gen=[SimpleNamespace(width=w, params=w * w, value=v) for w, v in GEN.items()],
    )
    estimate = SimpleNamespace(estimate=cross, low=None, high=None)
    return SimpleNamespace(prime=prime, status=status, p_cross=estimate, curves=curves)


def content(random: list[Any], permuted: list[Any]) -> Any:
    panels = tuple(SimpleNamespace(crossing=one) for one in random)
    settings = (SimpleNamespace(panels=panels),)
    return SimpleNamespace(name="control", settings=settings, permuted=tuple(permuted))


RANDOM = {32: None, 64: 250.0, 128: 60.0}


def test_crossings_by_both_labels_stand_side_by_side() -> None:
    both = content(
        [answer(97, RANDOM, 5e3)], [answer(97, {64: 1000.0, 128: 180.0, 200: 90.0}, 2e4)]
    )
    (one,) = clocks(both)
    assert one.slowdown == (4.0, 3.0)
    assert one.factor == pytest.approx(4)
    said, table = label_blocks(both)
    assert isinstance(said, Paragraph)
    assert said.text == (
        "Permuted labels on the task's own inputs are memorised in 3 to 4 times the epochs of "
        "random labels (2 widths trained with both). By permuted labels the crossing lies at 4 "
        "times the usual one at p = 97."
    )
    assert isinstance(table, Table)
    assert table.rows[0][3:] == ("+0.602", "3.5", "2")


def test_without_a_crossing_the_widest_width_with_both_speeds_is_a_lower_limit() -> None:
    never = answer(97, {64: None, 128: 180.0, 200: 170.0}, None)  # no run on the task at 200
    both = content([answer(97, RANDOM, 5e3)], [never])
    (one,) = clocks(both)
    assert one.above == 128**2
    assert one.factor == pytest.approx(128**2 / 5e3)
    *_, last = label_sentences(both)
    assert "above every width trained at p = 97: beyond 3.3 times" in last
    *_, table = label_blocks(both)
    assert isinstance(table, Table)
    assert table.rows[0][2:4] == ("> 16,384", "> +0.515")


def test_a_suite_with_one_kind_of_labels_says_nothing() -> None:
    assert list(label_blocks(content([answer(97, RANDOM, 5e3)], []))) == []
