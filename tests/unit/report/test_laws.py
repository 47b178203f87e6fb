"""The laws in words: what was fitted, and how far its intervals can be trusted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from service.answers.law import GeneralisationFit
from service.report.laws import generalisation_sentence, law_blocks


def generalisation(primes: int) -> Any:
    known = primes >= 5
    fit = GeneralisationFit(
        log_a=1.0,
        c=1.5,
        c_low=1.2 if known else None,
        c_high=1.8 if known else None,
        beta=0.45,
        beta_low=0.4,
        beta_high=0.5,
        r_squared=0.9,
        n=40,
        primes=primes,
    )
    return SimpleNamespace(generalisation=fit)


@pytest.mark.parametrize(
    ("primes", "words"),
    [
        (1, "A·P^(−β) with β 0.45 [0.4, 0.5] (R² 0.9, 40 widths)."),
        (4, "and c 1.5 (R² 0.9, 40 widths) (4 primes: c's interval takes five)."),
        (
            9,
            "and c 1.5 [1.2, 1.8] (R² 0.9, 40 widths) (9 primes: c's interval is rough below ten).",
        ),
        (10, "and c 1.5 [1.2, 1.8] (R² 0.9, 40 widths)."),
    ],
)
def test_the_interval_of_the_primes_exponent_says_what_it_rests_on(primes: int, words: str) -> None:
    assert generalisation_sentence(generalisation(primes)).endswith(words)


def test_the_caption_says_from_where_on_errors_are_clustered() -> None:
    content: Any = SimpleNamespace(name="made-up", settings=())
    (table,) = law_blocks(content)
    assert "errors clustered by prime from three primes on" in table.caption  # type: ignore[union-attr]
