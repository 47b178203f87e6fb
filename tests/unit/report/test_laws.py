"""Capacity and the laws in words: what was fitted, and how far it can be trusted."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from groktime.service.analysis.capacity import BitsPerParameter
from groktime.service.analysis.laws import GeneralisationLaw
from groktime.service.answers.capacity import CapacityPoint, WidthCapacity
from groktime.service.report.document import Paragraph
from groktime.service.report.laws import capacity_blocks, falls, generalisation_sentence, law_blocks
from groktime.service.report.verdict import not_one_capacity


def generalisation(primes: int) -> Any:
    known = primes >= 5
    fit = GeneralisationLaw(
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
    content: Any = SimpleNamespace(name="made-up", settings=(), law_forms=())
    (table,) = law_blocks(content)
    assert "errors clustered by prime from three primes on" in table.caption  # type: ignore[union-attr]


def width(d: int, *flags: str, fitted: bool = True, fall: float = 0.0) -> WidthCapacity:
    """Two runs at one width; the larger set is memorised worse by a share."""
    sizes = ((400, 1000.0), (800, 1000.0 * (1 - fall)))
    return WidthCapacity(
        width=d,
        params=100 * d,
        capacity=1000.0,
        low=None,
        high=None,
        flags=flags,
        fitted=fitted,
        points=tuple(
            CapacityPoint(run=d + n, n=n, bits=bits, complexity=9000.0) for n, bits in sizes
        ),
    )


def bits(source: str = "fitted") -> BitsPerParameter:
    return BitsPerParameter(
        value=1.1,
        low=1.0,
        high=1.2,
        level=0.95,
        interval="bootstrap",
        source=source,  # type: ignore[arg-type]
        suite="made-up",
        note="",
    )


def part(*widths: WidthCapacity, decay: float | None = None, source: str = "fitted") -> Any:
    return SimpleNamespace(
        setting={} if decay is None else {"weight_decay": decay},
        c_model={"robust": bits(source)},
        capacity=SimpleNamespace(widths=widths, fit=None),
    )


def notes(*parts: Any) -> list[str]:
    content: Any = SimpleNamespace(
        name="made-up",
        settings=parts,
        main=("robust", "online"),
        record=SimpleNamespace(spec={}),
    )
    return [block.text for block in capacity_blocks(content) if isinstance(block, Paragraph)]


SATURATED = (width(8), width(12), width(16))


def test_widths_that_never_saturated_are_named_and_not_counted() -> None:
    out = [width(d, "not_saturated", fitted=False) for d in (10, 14)]
    rests, named, _ = notes(part(*SATURATED, *out))
    assert rests.startswith("C_model rests on 6 runs at 3 widths;")
    assert named == "d = 10, 14 never saturated and are left out of the line."
    _, named, _ = notes(part(*SATURATED, out[0]))
    assert named == "d = 10 never saturated and is left out of the line."


def test_widths_in_the_line_that_never_saturated_are_named_as_such() -> None:
    rests, named, _ = notes(part(width(8), width(12, "not_saturated")))
    assert rests.startswith("C_model rests on 4 runs at 2 widths;")
    assert named == "d = 12 never saturated: the line takes a lower bound there."


def test_curves_that_fall_count_where_the_line_uses_them() -> None:
    out = width(20, "not_saturated", fitted=False, fall=0.5)
    assert falls(part(*SATURATED, out)) == []
    rests, *_ = notes(part(*SATURATED, width(24, fall=0.2), out))
    assert "At 1 of 4 widths a larger set was memorised worse" in rests
    assert "by up to 20 %" in rests


def test_notes_of_several_settings_name_theirs() -> None:
    same = [part(*SATURATED, decay=decay) for decay in (0.1, 0.3)]
    first, second, *_ = notes(*same, part(width(8), width(12), decay=1.0))
    assert first.startswith("weight decay 0.1; weight decay 0.3: C_model rests on 6 runs at 3")
    assert second.startswith("weight decay 1: C_model rests on 4 runs at 2 widths")


def test_a_setting_without_capacity_is_named_where_there_are_several() -> None:
    bare = SimpleNamespace(setting={"weight_decay": 0.1}, c_model={}, capacity="no runs")
    assert notes(bare) == ["no runs."]
    assert notes(bare, part(*SATURATED, decay=1.0))[0] == "weight decay 0.1: no runs."


def test_the_printed_c_model_is_doubted_only_beside_one_that_was_fitted() -> None:
    *_, last = notes(part(*SATURATED))
    assert last.endswith("so that no released run stands behind the printed value.")
    assert notes(part(source="paper"), part(source="matched_suite")) == []


def test_inherited_capacity_runs_keep_their_caveats() -> None:
    own, lent = notes(part(*SATURATED)), notes(part(*SATURATED, source="matched_suite"))
    assert lent == own
    assert lent[0].startswith("C_model rests on 6 runs at 3 widths")


def test_values_of_c_model_are_compared_once_each() -> None:
    def chapter(name: str, *values: BitsPerParameter) -> Any:
        parts = [
            SimpleNamespace(c_model={"robust": value}, setting={"weight_decay": float(index)})
            for index, value in enumerate(values)
        ]
        return SimpleNamespace(name=name, settings=parts, main=("robust", "online"))

    other = replace(bits(), value=2.1, low=2.0, high=2.2)
    told = not_one_capacity([chapter("small", bits()), chapter("large", other, other)])
    assert "1.1 [1, 1.2] in small at weight decay 0, 2.1 [2, 2.2] in large at" in told
    assert told.count("large") == 1
    lent = replace(other, source="matched_suite")
    assert not_one_capacity([chapter("small", bits()), chapter("large", lent)]) == ""
    near = replace(other, low=1.1)
    assert not_one_capacity([chapter("small", bits()), chapter("large", near)]) == ""
