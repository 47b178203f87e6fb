"""Numbers are written as people read them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from groktime.service import words
from groktime.service.words import (
    count,
    dex,
    duration,
    evidence,
    human,
    interval,
    is_shown,
    lost_text,
    p_value,
    percent,
    scientific,
    size,
)

EXAMPLES = json.loads((Path(__file__).parents[2] / "fixtures" / "numbers.json").read_text("utf-8"))


@pytest.mark.parametrize(("value", "text"), [*EXAMPLES["human"], (math.nan, "–"), (math.inf, "∞")])
def test_sizes_have_three_digits_and_a_unit(value: float | None, text: str) -> None:
    assert human(value) == text


@pytest.mark.parametrize(("seconds", "text"), EXAMPLES["duration"])
def test_durations_never_say_sixty_minutes(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (110e3, 140e3, "110k–140k"),
        (0.0, 140e3, "< 140k"),
        (110e3, math.inf, "> 110k"),
        (110e3, None, "> 110k"),
        (None, None, "unbounded"),
    ],
)
def test_open_intervals_say_which_side_is_known(
    low: float | None, high: float | None, text: str
) -> None:
    assert interval(low, high) == text


def test_shares_and_differences_carry_their_unit() -> None:
    assert percent(0.95) == "95 %"
    assert percent(0.995) == "99.5 %"
    assert dex(0.0312) == "+0.031 dex"
    assert dex(-0.2) == "−0.200 dex"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0312, "0.0312"), (3e-5, "3.0·10⁻⁵"), (1e-20, "< 10⁻¹²"), (None, "–"), (1.0, "1")],
)
def test_small_p_values_are_powers_of_ten(value: float | None, text: str) -> None:
    assert p_value(value) == text


def test_ticks_far_below_one_stay_apart() -> None:
    assert [scientific(v) for v in (1.5e-6, 2e-6)] == ["1.5·10⁻⁶", "2·10⁻⁶"]


def test_counts_agree_with_their_noun() -> None:
    assert count(1, "run") == "1 run"
    assert count(14300, "run") == "14,300 runs"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1_500, "1.5 kB"),
        (387_400_000, "387 MB"),
        (999_600_000, "1.0 GB"),
        (1.5e12, "1.5 TB"),
    ],
)
def test_sizes_go_by_thousands(content: float, text: str) -> None:
    assert size(content) == text


@pytest.mark.parametrize(
    ("p", "floor", "said"),
    [
        (0.001, None, "shown"),
        (0.01, None, "hint"),
        (0.0499, 1e-4, "hint"),
        (0.05, 1e-4, "not shown"),
        (1.0, None, "not shown"),
        (0.33, 0.33, "not testable"),
        (None, None, "not testable"),
        (math.nan, None, "not testable"),
    ],
)
def test_a_large_p_shows_nothing_and_never_absence(
    p: float | None, floor: float | None, said: str
) -> None:
    assert evidence(p, floor) == said
    assert is_shown(p, floor) == (said in ("shown", "hint"))


def test_one_place_decides_what_a_p_value_says() -> None:
    root = Path(words.__file__).resolve().parents[1]
    others = [
        path
        for package in ("service", "dashboard", "api")
        for path in (root / package).rglob("*.py")
        if path.name != "words.py"
    ]
    assert len(others) > 100
    for path in others:
        source = path.read_text("utf-8")
        assert not re.search(r"\b(ALPHA|HINT)\b", source), path
        assert not re.search(r"no significant|not significant|significantly", source, re.I), path


def test_lost_cells_are_told_in_words() -> None:
    lost = {"crossing: mem_always_faster": 2, "onset: at_floor": 1, "a_reason": 3}
    assert lost_text(lost) == (
        "2 × crossing: memorisation faster wherever the order is known; "
        "1 × onset: delayed at the narrowest width that fits its training set; 3 × a reason"
    )
