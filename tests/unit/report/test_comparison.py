"""Suites that differ in one setting: found, and what the setting moves told with its test."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fixtures.made_up_tests import answer, model, nested_test, sufficiency
from fixtures.made_up_tests import cell as made_up

from groktime.service.analysis.capacity import BitsPerParameter
from groktime.service.analysis.inputs import ByKind
from groktime.service.answers.cell_tests import CellRow
from groktime.service.report.comparison import (
    batching_blocks,
    pair_sentences,
    pair_table,
    pairs,
    protocols,
    refinements,
)
from groktime.service.report.content import Members
from groktime.service.report.document import Paragraph, Table
from groktime.service.report.paper import pooled_cells

SPEC = {
    "name": "a",
    "description": "…",
    "primes": [1, 2],
    "positions": "none",
    "seeds": {"from": 1},
}


def cell(prime: int, cross: float | None, onset: float | None, seeds: int = 5) -> CellRow:
    return made_up(prime, cross, onset, seeds=ByKind(speed=seeds, grok=seeds), last_batch=184)


def suite(
    name: str, cells: list[CellRow], *, first: int = 0, extra: int = 0, **changed: Any
) -> Any:
    """Cells of one prime share their runs from id `first` on; `extra` are its own."""
    spec = {**SPEC, "name": name, **changed}
    members = {
        (one.prime, ""): Members(
            speed=frozenset(range(0 if one.inherited else extra)),
            grok=frozenset(range(first + 10 * one.prime, first + 10 * one.prime + 5)),
        )
        for one in cells
    }
    return SimpleNamespace(
        name=name,
        main=("robust", "online"),
        record=SimpleNamespace(spec=spec),
        answer=SimpleNamespace(cells=tuple(cells)),
        members=members,
        settings=(),
    )


FIRST = [cell(97 + i, 1e5, 5e4) for i in range(6)]
SECOND = [cell(97 + i, 1e5 * (1.01 + i / 100), 5e4) for i in range(6)]


def test_only_suites_that_differ_in_one_plain_setting_are_paired() -> None:
    a, b = suite("a", FIRST), suite("b", SECOND, positions="rope")
    (found,) = pairs([a, b])
    assert (found.setting, found.first.name, found.second.name) == ("positions", "a", "b")
    assert pairs([a, suite("c", SECOND, positions="rope", lr=0.1)]) == []
    assert pairs([a, suite("c", SECOND)]) == []
    own = [{"widths": [8], "settings": {"lr": 0.1}}]
    assert pairs([a, suite("c", SECOND, grok=own)]) == []


def test_suites_may_ask_for_other_runs_of_common_cells() -> None:
    a = suite("a", FIRST, grok=[{"widths": [8]}], settings={"batch_size": {"steps": 12.36}})
    grid = {"primes": [97, 98, 3], "seeds": [7], "grok": [{"widths": [16], "primes": [97]}]}
    larger = [replace(c, batch_size=528, last_batch=4 + i) for i, c in enumerate(SECOND)]
    b = suite("b", larger, settings={"batch_size": {"steps": 12.06}}, **grid)
    (found,) = pairs([a, b])
    (said,) = pair_sentences([found])
    assert said.startswith(
        "Batches of 528 with a last one of 4 to 9 instead of 512 with a last one of 184 (b"
    )
    assert "b (batches of 528 with a last one of 4 to 9)" in pair_table(found).caption


def test_all_quantities_are_told_on_the_same_cells_and_the_others_named() -> None:
    lost = [
        replace(cell(97, None, 5e4), crossing_status="mem_always_faster"),
        replace(cell(98, 1e5, None), onset_status="at_floor"),
    ]
    (said,) = pair_sentences(
        pairs([suite("a", FIRST), suite("b", lost + SECOND[2:], positions="rope")])
    )
    assert said.count("4 common cells") == 3
    assert (
        "Not compared: p = 97 (crossing: memorisation faster wherever the order is known)" in said
    )
    assert "p = 98 (onset: delayed at the narrowest width that fits its training set)" in said


def test_cells_that_one_suite_has_not_trained_are_not_common() -> None:
    untrained = [replace(c, seeds=ByKind(speed=5, grok=0)) for c in SECOND[:2]]
    (found,) = pairs([suite("a", FIRST), suite("b", untrained + SECOND[2:], positions="rope")])
    assert [before.prime for before, _ in found.cells] == [99, 100, 101, 102]
    assert len(pair_table(found).rows) == 4
    few = [replace(c, seeds=ByKind(speed=0, grok=0)) for c in SECOND[:4]]
    assert pairs([suite("a", FIRST), suite("b", few + SECOND[4:], positions="rope")]) == []


def test_what_moved_is_told_with_its_range_and_test() -> None:
    found = pairs([suite("a", FIRST), suite("b", SECOND, positions="rope")])
    (said,) = pair_sentences(found)
    assert said.startswith(
        "Positions rope instead of none (b beside a): P_cross +3 % in the median"
    )
    # Six pairs of one sign: 2 / 2⁶.
    assert (
        "of 6 common cells, from +1 % to +6 %, signed-rank p = 0.0312, the smallest possible"
        in said
    )
    assert "P_onset the same in all 6 common cells" in said
    assert "residual −0.01 dex in the median of 6 common cells, from −0.03 dex to −0.00 dex" in said
    assert said.endswith("Fewest seeds a cell: 5 and 5 of a and b.")


@pytest.mark.parametrize("n", [3, 4, 5])
def test_few_pairs_are_said_to_be_too_few(n: int) -> None:
    (said,) = pair_sentences(
        pairs([suite("a", FIRST[:n]), suite("b", SECOND[:n], positions="rope")])
    )
    assert f"too few cells to test, smallest possible p = {2 / 2**n:.3g}" in said


def test_pairs_of_the_same_change_are_also_told_together() -> None:
    all_four = [
        suite("a", FIRST[:3]),
        suite("b", SECOND[:3], positions="rope"),
        suite("c", FIRST[3:], primes=[3]),
        suite("d", SECOND[3:], primes=[3], positions="rope"),
    ]
    *_, last = pair_sentences(pairs(all_four))
    assert last.startswith("Positions rope instead of none, all 2 pairs of suites: P_cross +3 %")
    assert "signed-rank p = 0.0312" in last


def test_cells_that_both_suites_inherit_are_not_counted_again() -> None:
    first, second = ([replace(c, inherited=True) for c in cells[:2]] for cells in (FIRST, SECOND))
    all_four = [
        suite("a", FIRST[:3]),
        suite("b", SECOND[:3], positions="rope"),
        suite("c", first + FIRST[3:], primes=[3]),
        suite("d", second + SECOND[3:], primes=[3], positions="rope"),
    ]
    *_, last = pair_sentences(pairs(all_four))
    assert "in the median of 6 common cells" in last


def test_runs_added_to_a_suite_are_told_as_before_and_after() -> None:
    before = [replace(c, p_cross_low=9.9e4, p_cross_high=1.025e5) for c in FIRST]
    whole = replace(cell(103, 3e5, 1e5), inherited=True)
    donor = suite("a", [*before, cell(103, 3e5, 1e5)])
    later = suite("b", [*SECOND, whole], inherits=[{"suite": "a"}], notes="more widths")
    said, table = refinements(later, [donor, later])
    assert isinstance(said, Paragraph)
    assert "4 of 6 crossings left the interval they had" in said.text
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == [str(c.prime) for c in SECOND]  # 103 has no own runs
    assert table.rows[0][4] == "+0.004"
    assert list(refinements(donor, [donor, later])) == []


def test_a_suite_that_adds_runs_to_another_stands_for_both_in_pairs() -> None:
    a, rope = suite("a", FIRST), suite("b", SECOND, positions="rope")
    more = suite("c", FIRST, inherits=[{"suite": "a"}], notes="more widths")
    (found,) = pairs([a, rope, more])
    assert {found.first.name, found.second.name} == {"b", "c"}


def test_a_cell_counts_once_and_a_setting_stays_together() -> None:
    donor = suite("a", [*FIRST, cell(103, 3e5, 1e5)])
    borrowed = replace(cell(103, 3e5, 1e5), inherited=True)
    later = suite("b", [*SECOND, borrowed], extra=2)
    last = suite("c", SECOND[:2], extra=9)  # adds most, to two of the primes alone
    other = suite("d", [cell(97, 2e5, 1e5)], first=1_000)  # the same prime at another setting
    found = pooled_cells([donor, later, last, other])
    assert sorted(zip(found["p"], found["stratum"], strict=True)) == [
        *((97, "b"), (97, "d")),
        *((prime, "b") for prime in range(98, 104)),
    ]


def predicted(cells: list[CellRow], p: float, crossing: float, prime: float) -> Any:
    models = [model("M1", crossing), model("MP", prime)]
    return answer(cells=cells, nested=sufficiency(nested_test("MP+", "MP", p), models=models))


def test_balanced_batches_stand_beside_remainders_whatever_the_cap_of_either_suite() -> None:
    remainder = suite("a", FIRST, stop={"max_epochs": 2000})
    balanced = suite("b", SECOND, batching="balanced", design={"kind": "locate"}, stop={})
    remainder.answer = predicted(FIRST, 0.001, 0.05, 0.1)
    balanced.answer = predicted(SECOND, 0.4, 0.09, 0.08)
    (found,) = pairs([remainder, balanced])
    assert found.values == ("remainder", "balanced")
    said, table = batching_blocks(found)
    assert isinstance(said, Paragraph)
    assert isinstance(table, Table)
    assert said.text == (
        "With remainder batches the crossing adds information beyond log p (F = 9, p = 0.001), and "
        "its leave-one-out error is smaller (0.05 dex against 0.1). With balanced batches the "
        "crossing is not shown to add information beyond log p (F = 9, p = 0.4), and its "
        "leave-one-out error is not smaller (0.09 dex against 0.08)."
    )
    assert [row[0] for row in table.rows] == ["remainder", "balanced"]
    assert table.rows[1][4:8] == ("9", "0.4", "0.09", "0.08")
    (other,) = pairs([remainder, suite("c", SECOND, positions="rope")])
    assert list(batching_blocks(other)) == []


def capacity_suite(name: str, waited: int, bits: dict[int, float], slope: float) -> Any:
    widths = tuple(SimpleNamespace(width=w, capacity=c) for w, c in bits.items())
    part = SimpleNamespace(
        setting={"weight_decay": 0.0},
        capacity=SimpleNamespace(widths=widths),
        c_model={"robust": BitsPerParameter(slope)},
    )
    return SimpleNamespace(
        name=name,
        main=("robust", "online"),
        capacity_alone=True,
        settings=(part,),
        record=SimpleNamespace(spec={"stop": {"patience": waited}}),
    )


def test_plateaus_are_set_beside_those_of_another_patience() -> None:
    short = capacity_suite("short", 100, {10: 11_000, 14: 20_000, 22: 44_000}, 2.0)
    long = capacity_suite("long", 1000, {10: 12_100, 14: 21_000}, 2.5)
    said, table = protocols(long, [short, long, SimpleNamespace(capacity_alone=False)])  # type: ignore[list-item]
    assert isinstance(table, Table)
    assert isinstance(said, Paragraph)
    assert said.text.endswith(
        "the same widths hold this many times the bits: 1.05 to 1.1 at weight decay 0."
    )
    assert [(row[1], row[3], row[6], row[8]) for row in table.rows] == [
        ("d = 10", "100", "1,000", "1.1"),
        ("d = 14", "100", "1,000", "1.05"),
        ("C_model", "100", "1,000", "1.25"),
    ]
    assert list(protocols(long, [long])) == []
