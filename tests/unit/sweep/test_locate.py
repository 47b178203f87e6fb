"""The chooser of a located cell, asked about cells whose answer is known."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from groktime.service.sweep.locate import (
    END_SEEDS,
    NARROW,
    Choice,
    Grid,
    Progress,
    locate,
    sign_epochs,
)
from groktime.service.sweep.priors import Finding, LocatedKind, Run

K_MEM = 10_000.0
PARAMS = {d: 122 * d + 2 * (16 * d * d + 2 * d) + d for d in range(16, 130, 2)}
CAP = 5000


def grid(widths: range = range(16, 130, 2)) -> Grid:
    return Grid(
        {d: PARAMS[d] for d in widths},
        range(42, 52),
        lambda kind, width: float(PARAMS[width]),
        K_MEM,
    )


def cell(crossing: float, onset: float) -> Callable[[Choice], Finding]:
    """Runs of a cell without noise: T_mem falls steeply through T_gen at the crossing."""

    def run(choice: Choice) -> Finding:
        p = PARAMS[choice.width]
        time = 300 * (crossing / p) ** (4.0 if choice.kind == "speed" else 0.4)
        reached = time if time <= CAP else None
        delayed = p > onset if choice.kind == "grok" else None
        return Finding(choice.kind, choice.width, choice.seed, reached, min(time, CAP), delayed)

    return run


def located(
    run: Callable[[Choice], Finding], space: Grid, at_once: int = 2
) -> tuple[Progress, list[Finding]]:
    findings: list[Finding] = []
    while True:
        progress = locate(space, findings)
        if progress.is_done:
            return progress, findings
        asked = [(c.kind, c.width, c.seed) for c in progress.choices]
        trained = [(f.kind, f.width, f.seed) for f in findings]
        assert len(set(asked)) == len(asked), "a run is asked for twice"
        assert not set(asked) & set(trained), "a trained run is asked for again"
        findings += [run(choice) for choice in progress.choices[:at_once]]
        assert len(findings) < 100


@pytest.mark.parametrize("at", [22_000.0, 46_000.0, 120_000.0])
@pytest.mark.parametrize("at_once", [1, 2, 8])
def test_both_points_are_placed_with_few_runs_wherever_they_are(at: float, at_once: int) -> None:
    progress, findings = located(cell(at, at / 2), grid(), at_once)
    assert progress.crossing is not None
    assert progress.onset is not None
    assert progress.crossing.status == progress.onset.status == "placed"
    assert progress.crossing.params == pytest.approx(at, rel=0.02)
    assert progress.crossing.bracket is not None
    low, high = progress.crossing.bracket
    assert low < at < high
    step = max(math.log(PARAMS[d + 2] / PARAMS[d]) for d in (16, 24, 32, 64))
    assert math.log(high / low) <= max(NARROW, step)
    assert progress.onset.params is not None
    assert abs(math.log10(progress.onset.params / (at / 2))) < 0.08
    assert len(findings) <= 45


def test_each_side_of_the_crossing_is_confirmed_by_a_width_beyond() -> None:
    progress, findings = located(cell(46_000.0, 20_000.0), grid())
    assert progress.crossing is not None
    assert progress.crossing.bracket is not None
    low, high = progress.crossing.bracket
    speeds = {PARAMS[f.width] for f in findings if f.kind == "speed"}
    assert min(speeds) < low
    assert max(speeds) > high


@pytest.mark.parametrize("at", [2_000.0, 5_000_000.0])
def test_a_cell_without_a_crossing_says_so_only_when_an_end_is_decided(at: float) -> None:
    space = grid()
    progress, findings = located(cell(at, 30_000.0), space)
    assert progress.crossing is not None
    assert progress.crossing.status == "no crossing in range"
    end = 16 if at < 10_000 else 128
    assert {f.kind for f in findings if f.width == end} == {"speed", "grok"}


def test_runs_in_flight_are_not_asked_for_again() -> None:
    first = locate(grid(), [])
    flying: set[tuple[LocatedKind, int, int]] = {(c.kind, c.width, c.seed) for c in first.choices}
    again = locate(grid(), [], in_flight=flying)
    assert not flying & {(c.kind, c.width, c.seed) for c in again.choices}


def test_a_finer_precision_asks_for_more_seeds() -> None:
    run, space = cell(46_000.0, 20_000.0), grid()
    _, findings = located(run, space)
    assert locate(space, findings, precision=0.03).is_done
    finer = locate(space, findings, precision=0.005, wanted=("crossing",))
    assert {c.why for c in finer.choices} == {"another seed beside the crossing"}


def test_two_seeds_that_disagree_are_settled_by_a_third() -> None:
    run, space = cell(48_000.0, 20_000.0), grid(range(28, 52, 4))
    agreed = [
        run(Choice(kind, width, seed, ""))
        for kind in ("speed", "grok")
        for width in (32, 36, 40, 44)
        for seed in (42, 43)
    ]
    assert locate(space, agreed, precision=0.1, wanted=("crossing",)).is_done
    wild = [
        Finding(f.kind, f.width, f.seed, 2 * f.last_epoch, 2 * f.last_epoch)
        if (f.kind, f.width, f.seed) == ("speed", 36, 43)
        else f
        for f in agreed
    ]
    choices = locate(space, wild, precision=0.1, wanted=("crossing",)).choices
    assert [(c.kind, c.width, c.seed) for c in choices] == [("speed", 36, 44)]


def test_only_what_is_wanted_is_asked_for() -> None:
    run, space = cell(46_000.0, 20_000.0), grid()
    findings: list[Finding] = []
    while not (progress := locate(space, findings, wanted=("onset",))).is_done:
        assert {c.kind for c in progress.choices} == {"grok"}
        findings += [run(choice) for choice in progress.choices]
    assert progress.crossing is None


def test_a_run_that_is_lost_is_replaced_by_another_seed() -> None:
    space = grid()
    first = locate(space, []).choices[0]
    lost = {(first.kind, first.width, first.seed)}
    again = locate(space, [], lost=lost)
    there = [c for c in again.choices if c.width == first.width]
    assert {(c.kind, c.seed) for c in there} == {("speed", 43), ("grok", 43)}


def test_where_neither_speed_is_reached_larger_networks_are_tried_to_the_end() -> None:
    def never(choice: Choice) -> Finding:
        return Finding(choice.kind, choice.width, choice.seed, None, CAP, None)

    progress, findings = located(never, grid())
    assert progress.crossing is not None
    assert progress.crossing.status == "undecided"
    assert max(f.width for f in findings if f.kind == "speed") == 128
    assert progress.onset is not None
    assert progress.onset.status == "no onset in range"


def test_a_crossing_below_all_that_can_be_measured_is_undecided() -> None:
    faster = cell(2_000.0, 10_000.0)

    def run(choice: Choice) -> Finding:
        if choice.width < 30:
            return Finding(choice.kind, choice.width, choice.seed, None, CAP, None)
        return faster(choice)

    progress, _ = located(run, grid())
    assert progress.crossing is not None
    assert progress.crossing.status == "undecided"
    assert progress.crossing.bracket == (PARAMS[28], PARAMS[30])


def test_no_crossing_is_said_only_when_both_ends_of_the_range_are_decided() -> None:
    _, findings = located(cell(5_000_000.0, 30_000.0), grid())
    ends = {f.width for f in findings if f.kind == "speed"}
    assert {16, 128} <= ends
    seeds = {f.seed for f in findings if f.kind == "speed" and f.width == 128}
    assert len(seeds) == 2


@pytest.mark.parametrize("onset", [1_000.0, 10_000_000.0])
def test_an_onset_beyond_the_range_is_said_only_when_that_end_is_decided(onset: float) -> None:
    progress, findings = located(cell(46_000.0, onset), grid())
    assert progress.onset is not None
    assert progress.onset.status == "no onset in range"
    end = 16 if onset < 2_000 else 128
    seeds = {f.seed for f in findings if f.kind == "grok" and f.width == end}
    assert END_SEEDS <= len(seeds) <= END_SEEDS + 1  # two are trained at once


def test_signs_that_contradict_each_other_are_settled_by_seeds() -> None:
    run, space = cell(50_000.0, 20_000.0), grid(range(28, 52, 4))
    findings = [
        run(Choice(kind, width, 42, ""))
        for kind in ("speed", "grok")
        for width in (28, 32, 36, 40)
        if (kind, width) != ("speed", 32)
    ]
    # One seed at 32 memorises a little too early: three changes of sign instead of one.
    early = 0.95 * run(Choice("grok", 32, 42, "")).last_epoch
    findings.append(Finding("speed", 32, 42, early, early))
    choices = locate(space, findings, wanted=("crossing",)).choices
    assert ("speed", 32) in {(c.kind, c.width) for c in choices}
    assert {c.why for c in choices} == {"its sign contradicts its neighbours'"}


def test_beside_a_width_that_never_memorised_the_crossing_is_bracketed() -> None:
    run, space = cell(46_000.0, 20_000.0), grid(range(16, 130, 16))

    def censored(choice: Choice) -> Finding:
        found = run(choice)
        slow = choice.kind == "speed" and PARAMS[choice.width] < 46_000
        return Finding(found.kind, found.width, found.seed, None, CAP) if slow else found

    progress, findings = located(censored, space)
    assert progress.crossing is not None
    assert progress.crossing.status == "bracketed"
    assert progress.crossing.bracket == (PARAMS[32], PARAMS[48])
    assert sum(f.kind == "speed" and f.width == 32 for f in findings) == 1, "seeds teach nothing"


def test_only_slow_speed_runs_below_another_slow_width_are_a_sign() -> None:
    run = cell(46_000.0, 20_000.0)
    pairs: dict[int, list[Finding]] = {
        width: [run(Choice("speed", width, 42, "")), run(Choice("grok", width, 42, ""))]
        for width in (28, 32, 40)
    }
    t_gen = pairs[28][1].last_epoch
    assert sign_epochs([*pairs[28], *pairs[40]]) == {}, "28 may be beside the crossing"
    assert sign_epochs([pairs[28][1], *pairs[32]]) == {28: pytest.approx(3 * t_gen)}
    assert sign_epochs([*pairs[28], *pairs[32]], bracket=[28]) == {}
    never = Finding("grok", 28, 43, None, CAP)
    assert sign_epochs([pairs[28][1], never, *pairs[32]]) == {}, "T_gen is open"


def test_a_run_set_aside_beside_the_crossing_is_wanted_whole() -> None:
    run, space = cell(48_000.0, 20_000.0), grid(range(28, 52, 4))
    findings = [
        run(Choice(kind, width, 42, "")) for kind in ("speed", "grok") for width in (36, 40)
    ]
    aside = [
        Finding("speed", 36, 42, None, 250, set_aside=True)
        if (f.kind, f.width) == ("speed", 36)
        else f
        for f in findings
    ]
    choices = locate(space, aside, wanted=("crossing",)).choices
    assert [(c.kind, c.width, c.seed) for c in choices] == [("speed", 36, 42)]
    waiting = locate(space, aside, wanted=("crossing",), in_flight={("speed", 36, 42)})
    assert waiting.choices == ()
    assert not waiting.is_done


def test_a_width_at_which_all_runs_of_a_kind_are_lost_is_passed_over() -> None:
    run, space = cell(46_000.0, 20_000.0), grid()
    lost: set[Run] = {("speed", width, seed) for width in (34, 36) for seed in space.seeds}
    findings: list[Finding] = []
    while not (progress := locate(space, findings, lost=lost, wanted=("crossing",))).is_done:
        assert not {(c.kind, c.width, c.seed) for c in progress.choices} & lost
        assert not {34, 36} & {c.width for c in progress.choices}
        findings += [run(choice) for choice in progress.choices]
    assert progress.crossing is not None
    assert progress.crossing.bracket == (PARAMS[32], PARAMS[38])
