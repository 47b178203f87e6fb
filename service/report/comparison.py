"""Several suites side by side, and pairs that differ in one setting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from groktime.service.analysis.calibration import signed_rank
from groktime.service.analysis.capacity import BitsPerParameter
from groktime.service.analysis.laws import LawFit
from groktime.service.answers.cell_tests import CellRow, CellTests
from groktime.service.answers.verdicts import compared_models
from groktime.service.report.content import CONVENTIONS, SuiteContent, cost
from groktime.service.report.document import Block, Paragraph, Table
from groktime.service.report.laws import c_model, c_model_source, c_model_text, patience
from groktime.service.report.predictions import rank_text
from groktime.service.report.tables import (
    HEADLINES,
    HEADLINES_EXPLAINED,
    crossing_words,
    headline,
    onset_words,
)
from groktime.service.words import (
    EN_DASH,
    axis_name,
    convention_text,
    count,
    estimate,
    evidence,
    p_value,
    plain,
    probability,
    real,
    setting_text,
    signed,
    span,
    whole,
)


def comparison(contents: Sequence[SuiteContent], found: Sequence[Pair]) -> list[Block]:
    """Headlines by suite and convention, constants by suite, and pairs cell by cell."""
    tables: list[Block] = [_headlines(contents), _constants(contents)]
    tables += [block for pair in found for block in (*batching_blocks(pair), pair_table(pair))]
    paired = {name for pair in found for name in (pair.first.name, pair.second.name)}
    alone = [content for content in contents if content.name not in paired]
    return [*tables, _cells(alone)] if alone else tables


def _headlines(contents: Sequence[SuiteContent]) -> Table:
    rows = tuple(
        (content.name, method, clock, *headline(content.by((method, clock))))
        for content in contents
        for method, clock in CONVENTIONS
    )
    return Table(
        name="suites-headlines",
        caption=f"Suites side by side, by method and training clock. {HEADLINES_EXPLAINED}",
        header=("suite", "method", "clock", *HEADLINES),
        rows=rows,
        numeric=frozenset(range(3, 3 + len(HEADLINES))),
    )


def _constants(contents: Sequence[SuiteContent]) -> Table:
    rows = []
    for content in contents:
        for part in content.settings:
            bits = c_model(content, part)
            law = None if isinstance(part.law, str) else part.law.pooled
            rows.append(
                (
                    content.name,
                    setting_text(part.setting, "all cells"),
                    str(content.record.spec.get("positions", EN_DASH)),
                    EN_DASH if bits is None else f"{c_model_text(bits)} ({c_model_source(bits)})",
                    EN_DASH if law is None or bits is None else _exponent(law, bits),
                    cost(content.training).removeprefix("Cost: ").rstrip("."),
                )
            )
    return Table(
        name="suites-constants",
        caption="Bits per parameter, the exponent of T_mem = b·exp(a·f), and cost by suite. "
        "f = K_mem / (C_model·P) depends on the C_model in use; a / C_model is the exponent of "
        "K_mem / P, but on the window of f that is fitted: comparable where C_model is the same.",
        header=("suite", "setting", "positions", "C_model", "a / C_model", "cost"),
        rows=tuple(rows),
    )


def _exponent(law: LawFit, bits: BitsPerParameter) -> str:
    low, high = (None if end is None else end / bits.value for end in (law.a_low, law.a_high))
    return real(law.a / bits.value, low, high)


def _cells(contents: Sequence[SuiteContent]) -> Table:
    """P_cross, P_onset and residual of every suite at each prime and setting."""
    answers = [(content.name, content.answer) for content in contents]
    keys = dict.fromkeys(
        (cell.prime, setting_text(cell.setting, "all"))
        for _, answer in answers
        if answer is not None
        for cell in answer.cells
    )
    rows = []
    for prime, setting in sorted(keys):
        row = [str(prime), setting]
        for _, answer in answers:
            cells = () if answer is None else answer.cells
            cell = next(
                (c for c in cells if (c.prime, setting_text(c.setting, "all")) == (prime, setting)),
                None,
            )
            if cell is None:
                row += [EN_DASH] * 3
            else:
                row += [
                    estimate(cell.p_cross, cell.p_cross_low, cell.p_cross_high),
                    estimate(cell.p_onset, cell.p_onset_low, cell.p_onset_high),
                    signed(cell.residual),
                ]
        rows.append(tuple(row))
    header = ["p", "setting"]
    for name, _ in answers:
        header += [f"{name}: P_cross", f"{name}: P_onset", f"{name}: residual"]
    return Table(
        name="suites-cells",
        caption="Every cell of the suites side by side, each by its suite's own convention.",
        header=tuple(header),
        rows=tuple(rows),
        numeric=frozenset({0, *range(2, len(header))}),
    )


# Which runs a suite asks for, and what moves neither crossing nor onset; the rest of its spec
# tells how its networks are trained.
BESIDE_TRAINING = (
    *("name", "description", "notes", "inherits", "design"),
    *("primes", "seeds", "order", "capacity", "stop"),
)
GRID = ("primes", "seeds", "widths", "stop")  # of a block of runs
BATCH_SIZE = "settings.batch_size"
BATCHING = "batching"
USUAL = {BATCHING: "remainder"}  # what a spec means that does not name it
LONGEST_LABEL = 12  # characters of a setting's value above a column
FEWEST = 3  # common cells


@dataclass(frozen=True)
class Pair:
    """Two suites and the cells they share; `setting` is what tells them apart."""

    setting: str
    first: SuiteContent
    second: SuiteContent
    cells: tuple[tuple[CellRow, CellRow], ...]

    @property
    def name(self) -> str:
        if self.setting.startswith(BATCH_SIZE):
            return "batches of"
        return axis_name(self.setting.removeprefix("settings."))

    @property
    def values(self) -> tuple[str, str]:
        """The setting in the first and in the second suite; of batches, what they come to."""
        if self.setting.startswith(BATCH_SIZE):
            return self._batches(0), self._batches(1)
        first, second = (
            str(
                _training(content.record.spec).get(
                    self.setting, USUAL.get(self.setting, "as usual")
                )
            )
            for content in (self.first, self.second)
        )
        return first, second

    @property
    def whole(self) -> list[tuple[CellRow, CellRow]]:
        """The cells that have both points in both suites."""
        return [c for c in self.cells if None not in (c[0].residual, c[1].residual)]

    def moves(self, quantity: str) -> Move | None:
        """How far `p_cross`, `p_onset` or the residual moves; None where too few cells tell."""
        return _move(quantity, self.whole) if len(self.whole) >= FEWEST else None

    @property
    def change(self) -> str:
        """What differs, short enough for a row of findings."""
        if self.setting.startswith(BATCH_SIZE):
            before, now = (self._span(which, "last_batch") for which in (0, 1))
            return f"A last batch of {now} examples instead of {before}"
        before, now = self.values
        return f"{self.name[:1].upper()}{self.name[1:]} {now} instead of {before}"

    def _batches(self, which: int) -> str:
        full, last = (self._span(which, name) for name in ("batch_size", "last_batch"))
        return f"{full} with a last one of {last}"

    def _span(self, which: int, name: str) -> str:
        return span(sorted({getattr(cells[which], name) for cells in self.cells}))


def pairs(contents: Sequence[SuiteContent]) -> list[Pair]:
    """Every two suites with common cells whose specs differ in one plain setting.

    A suite that adds runs to all of another stands for both.
    """
    found = []
    extended = {
        donor.name
        for content in contents
        for donor in contents
        if donor.name in _donors(content)
        and _training(donor.record.spec) == _training(content.record.spec)
    }
    contents = [content for content in contents if content.name not in extended]
    for i, first in enumerate(contents):
        for second in contents[i + 1 :]:
            setting = _difference(first, second)
            common = _common(first, second) if setting else ()
            if setting and len(common) >= FEWEST:
                found.append(Pair(setting, first, second, common))
    return found


def _difference(first: SuiteContent, second: SuiteContent) -> str | None:
    a, b = _training(first.record.spec), _training(second.record.spec)
    differing = [key for key in {*a, *b} if a.get(key) != b.get(key)]
    if len(differing) != 1 or any(isinstance(t.get(differing[0]), list) for t in (a, b)):
        return None
    return differing[0]


def _training(spec: Mapping[str, Any]) -> dict[str, Any]:
    """How a suite's speed and grok runs are trained: every value by its dotted name."""
    found: dict[str, Any] = {}
    for key, value in spec.items():
        if key in ("speed", "grok"):
            own = [{k: v for k, v in block.items() if k not in GRID} for block in value]
            found |= {key: own} if any(own) else {}
        elif key not in BESIDE_TRAINING:
            found |= _flat(key, value)
    return found


def _flat(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {name: value}
    parts = (_flat(f"{name}.{key}", part) for key, part in value.items())
    return {key: leaf for part in parts for key, leaf in part.items()}


def _common(first: SuiteContent, second: SuiteContent) -> tuple[tuple[CellRow, CellRow], ...]:
    if first.answer is None or second.answer is None:
        return ()
    others = {(c.prime, setting_text(c.setting, "all")): c for c in second.answer.cells}
    return tuple(
        (cell, other)
        for cell in first.answer.cells
        if (other := others.get((cell.prime, setting_text(cell.setting, "all")))) is not None
        and min(_seeds(cell), _seeds(other)) > 0
    )


def pair_sentences(found: Sequence[Pair]) -> Iterator[str]:
    """How far crossing and onset move from the first suite to the second, then over all pairs."""
    for pair in found:
        seeds = (min(_seeds(cells[i]) for cells in pair.cells) for i in (0, 1))
        fewest = " and ".join(str(n) for n in seeds)
        yield (
            f"{_changed(pair)} ({pair.second.name} beside {pair.first.name}): "
            f"{_all_moved(pair.cells)}. Fewest seeds a "
            f"cell: {fewest} of {pair.first.name} and {pair.second.name}."
        )
    for change in dict.fromkeys(_changed(pair) for pair in found):
        alike = [pair for pair in found if _changed(pair) == change]
        # Suites lend cells to others: what both sides inherit is another pair's own.
        cells = tuple(
            (one, other)
            for pair in alike
            for one, other in pair.cells
            if not (one.inherited and other.inherited)
        )
        if len(alike) > 1:
            yield f"{change}, all {len(alike)} pairs of suites: {_all_moved(cells)}."


def _changed(pair: Pair) -> str:
    name = pair.name
    before, now = pair.values
    values = f"{now} instead of {before}"
    return f"{name[:1].upper()}{name[1:]} {values}"


def _seeds(cell: CellRow) -> int:
    return min(cell.seeds.speed, cell.seeds.grok)


def refinements(content: SuiteContent, others: Sequence[SuiteContent]) -> Iterator[Block]:
    """Where a suite adds runs to the cells of another: both points before and after."""
    for donor in others:
        refined = added_to(donor, content)
        if refined:
            yield Paragraph(
                f"Runs added to {donor.name}: {_all_moved(refined)}. {_outside(refined)}"
            )
            yield _refined_table(donor, content, refined)


def added_to(donor: SuiteContent, content: SuiteContent) -> list[tuple[CellRow, CellRow]]:
    """The cells of `donor` that `content` inherits and adds runs to, before and after."""
    common = _common(donor, content) if donor.name in _donors(content) else ()
    return [cells for cells in common if not cells[1].inherited]


def _donors(content: SuiteContent) -> set[str]:
    return {donor["suite"] for donor in content.record.spec.get("inherits", ())}


def _outside(cells: Sequence[tuple[CellRow, CellRow]]) -> str:
    """How many crossings left the interval they had."""
    bounded = [
        not before.p_cross_low <= after.p_cross <= before.p_cross_high
        for before, after in cells
        if before.p_cross_low is not None
        and before.p_cross_high is not None
        and after.p_cross is not None
    ]
    if not bounded:
        return "No crossing had an interval before."
    return f"{sum(bounded)} of {count(len(bounded), 'crossing')} left the interval they had."


def _refined_table(
    donor: SuiteContent, content: SuiteContent, cells: Sequence[tuple[CellRow, CellRow]]
) -> Table:
    def shift(before: float | None, after: float | None) -> str:
        return EN_DASH if before is None or after is None else signed(np.log10(after / before))

    rows = tuple(
        (
            str(after.prime),
            setting_text(after.setting, "all"),
            estimate(before.p_cross, before.p_cross_low, before.p_cross_high),
            estimate(after.p_cross, after.p_cross_low, after.p_cross_high),
            shift(before.p_cross, after.p_cross),
            estimate(before.p_onset, before.p_onset_low, before.p_onset_high),
            estimate(after.p_onset, after.p_onset_low, after.p_onset_high),
            shift(before.p_onset, after.p_onset),
        )
        for before, after in cells
    )
    points = ("P_cross before", "after", "shift, dex", "P_onset before", "after", "shift, dex")
    return Table(
        name=f"{content.name}-beside-{donor.name}",
        caption=f"Both points by {donor.name} alone (before) and with the runs of {content.name} "
        f"(after), {convention_text(*content.main)}.",
        header=("p", "setting", *points),
        rows=rows,
        numeric=frozenset({0, *range(2, 8)}),
    )


QUANTITIES = ("P_cross", "P_onset", "residual")


def _convention(pair: Pair) -> str:
    ways = {convention_text(*content.main) for content in (pair.first, pair.second)}
    return ways.pop() if len(ways) == 1 else "each by its suite's own convention"


def _all_moved(pairs: Sequence[tuple[CellRow, CellRow]]) -> str:
    """Every quantity on the cells that have both points in both suites; others are named."""
    whole = [cells for cells in pairs if None not in (cells[0].residual, cells[1].residual)]
    if len(whole) >= FEWEST:
        told = "; ".join(_moved(quantity, whole) for quantity in QUANTITIES)
    else:
        told = f"{count(len(whole), 'common cell')} with both points, too few to compare"
    lost = [_lost(cells) for cells in pairs if cells not in whole]
    return told + (f". Not compared: {'; '.join(lost)}" if lost else "")


def _lost(cells: tuple[CellRow, CellRow]) -> str:
    """`p = 53 (crossing: memorisation faster …)`, the second suite's first."""
    for cell in reversed(cells):
        if cell.p_cross is None:
            return f"p = {cell.prime} (crossing: {crossing_words(cell)})"
        if cell.p_onset is None:
            return f"p = {cell.prime} (onset: {onset_words(cell)})"
    return f"p = {cells[0].prime}"


@dataclass(frozen=True)
class Move:
    """How far a quantity moves between two suites: median, smallest and largest, and its test."""

    n: int
    median: str
    low: str
    high: str
    p: float
    floor: float


def _move(quantity: str, pairs: Sequence[tuple[CellRow, CellRow]]) -> Move | None:
    """Points move by per cent, residuals by dex; None where nothing moves at all."""
    known = np.array([[getattr(cell, quantity) for cell in cells] for cells in pairs])
    residual = quantity == "residual"
    moves = np.diff(known if residual else np.log10(known)).ravel()
    test = signed_rank(moves)
    if test is None:
        return None
    low, middle, high = (
        f"{signed(move, 2)} dex" if residual else f"{signed(100 * (10**move - 1), 0)} %"
        for move in (moves.min(), np.median(moves), moves.max())
    )
    return Move(len(known), middle, low, high, test.p, test.floor)


def _moved(quantity: str, pairs: Sequence[tuple[CellRow, CellRow]]) -> str:
    """`P_cross +3 % in the median of 6 cells, from 0 % to +9 %, signed-rank p = 0.031`."""
    cells = count(len(pairs), "common cell")
    move = _move(quantity.lower(), pairs)
    if move is None:
        return f"{quantity} the same in all {cells}"
    told = f"signed-rank {probability(move.p)}"
    if evidence(move.p, move.floor) == "not testable":
        told = f"too few cells to test, smallest possible {probability(move.floor)}"
    elif move.p <= move.floor:
        told += ", the smallest possible"
    return (
        f"{quantity} {move.median} in the median of {cells}, from {move.low} to {move.high}, {told}"
    )


def batching_blocks(pair: Pair) -> Iterator[Block]:
    """Whether the crossing beats log p where the last batch is no nuisance, and where it is."""
    first, second = pair.first.answer, pair.second.answer
    if pair.setting != BATCHING or first is None or second is None:
        return
    both = list(zip(pair.values, (first, second), strict=True))
    yield Paragraph(" ".join(f"With {way} batches {_says_more(found)}." for way, found in both))
    yield Table(
        name=f"{pair.first.name}-{pair.second.name}-information",
        caption="What predicts P_onset, by how an epoch is cut into batches: F and p of the "
        "crossing beside log p, leave-one-out errors in dex, residuals over the cells.",
        header=(
            *("batches", "suite", "cells", "ρ", "F", "p", "crossing", "log p"),
            *("log p and last batch", "median residual", "SD"),
        ),
        rows=tuple(_informed(way, found) for way, found in both),
        numeric=frozenset(range(2, 11)),
    )


def _says_more(found: CellTests) -> str:
    """`the crossing adds information beyond log p (F = 29, p = 0.001; leave-one-out …)`."""
    test, errors = found.nested("MP+", "MP"), _errors(found)
    if test is None or not test.testable:
        return "it is not testable whether the crossing says more than log p"
    beats = errors["M1"] is not None and errors["MP"] is not None and errors["M1"] < errors["MP"]
    said = {
        "shown": "the crossing adds information beyond log p",
        "hint": "the crossing may add information beyond log p",
    }.get(evidence(test.p), "the crossing is not shown to add information beyond log p")
    better = "smaller" if beats else "not smaller"
    return (
        f"{said} (F = {plain(test.f)}, {probability(test.p)}), and its leave-one-out error is "
        f"{better} ({plain(errors['M1'])} dex against {plain(errors['MP'])})"
    )


def _errors(found: CellTests) -> dict[str, float | None]:
    models = compared_models(found)
    names = ("M1", "MP", "MB")
    return {name: models[name].loo_rmse if name in models else None for name in names}


def _informed(way: str, found: CellTests) -> tuple[str, ...]:
    test, errors = found.nested("MP+", "MP"), _errors(found)
    residuals = [cell.residual for cell in found.cells if cell.residual is not None]
    return (
        way,
        found.suite,
        f"{found.n} of {found.n_total}",
        rank_text(found),
        plain(None if test is None else test.f),
        EN_DASH if test is None else p_value(test.p),
        *(plain(errors[name]) for name in ("M1", "MP", "MB")),
        signed(float(np.median(residuals)) if residuals else None),
        plain(float(np.std(residuals, ddof=1)) if len(residuals) > 1 else None),
    )


def protocols(content: SuiteContent, others: Sequence[SuiteContent]) -> Iterator[Block]:
    """Capacity suites side by side: C_model and every plateau that two of them have."""
    beside = [c for c in others if c.capacity_alone and c.name != content.name]
    rows = [row for other in beside for row in _plateaus(other, content)]
    for other in beside:
        yield from _by_patience(other, content)
    if rows:
        yield Table(
            name=f"{content.name}-protocols",
            caption="Bits held by the same network where training stops otherwise: the plateau of "
            "each width that both suites have, and the slope over each suite's own widths, bits "
            "per parameter. Patience: epochs without improvement that end a run.",
            header=(
                "setting",
                "of",
                "suite",
                "patience",
                "bits",
                "suite",
                "patience",
                "bits",
                "ratio",
            ),
            rows=tuple(rows),
            numeric=frozenset({3, 4, 6, 7, 8}),
        )


def _by_patience(other: SuiteContent, content: SuiteContent) -> Iterator[Block]:
    """How much more the same widths hold, by setting."""
    waited, before = patience(content), patience(other)
    ratios: dict[str, list[float]] = {}
    for name, of, *_, ratio in _plateaus(other, content):
        if of != "C_model":
            ratios.setdefault(name, []).append(float(ratio))
    if ratios and waited != before:
        told = "; ".join(
            f"{plain(min(found))} to {plain(max(found))} at {name}"
            for name, found in ratios.items()
        )
        yield Paragraph(
            f"With a patience of {whole(waited)} epochs instead of {whole(before)}, the same "
            f"widths hold this many times the bits: {told}."
        )


def _plateaus(other: SuiteContent, content: SuiteContent) -> Iterator[tuple[str, ...]]:
    theirs = {setting_text(part.setting, "all"): part for part in other.settings}
    for part in content.settings:
        name = setting_text(part.setting, "all")
        same = theirs.get(name)
        if same is None or isinstance(part.capacity, str) or isinstance(same.capacity, str):
            continue
        known = {width.width: width for width in same.capacity.widths}
        measured = [
            (f"d = {width.width}", known[width.width].capacity, width.capacity)
            for width in part.capacity.widths
            if width.width in known
        ]
        for of, before, after in measured:
            yield _protocol_row(
                name, of, other, whole(before), content, whole(after), after / before
            )
        bits, more = c_model(other, same), c_model(content, part)
        if measured and bits is not None and more is not None:
            ends = c_model_text(bits), c_model_text(more)
            ratio = more.value / bits.value
            yield _protocol_row(name, "C_model", other, ends[0], content, ends[1], ratio)


def _protocol_row(
    setting: str,
    of: str,
    other: SuiteContent,
    before: str,
    content: SuiteContent,
    after: str,
    ratio: float,
) -> tuple[str, ...]:
    return (
        *(setting, of),
        *(other.name, whole(patience(other)), before),
        *(content.name, whole(patience(content)), after),
        plain(ratio),
    )


def pair_table(pair: Pair) -> Table:
    """Crossing, onset and residual of the common cells."""
    rows = []
    for cells in pair.cells:
        row = [str(cells[0].prime), setting_text(cells[0].setting, "all")]
        for cell in cells:
            row += [
                estimate(cell.p_cross, cell.p_cross_low, cell.p_cross_high),
                estimate(cell.p_onset, cell.p_onset_low, cell.p_onset_high),
                signed(cell.residual),
            ]
        rows.append(tuple(row))
    header = ["p", "setting"]
    for content, value in zip((pair.first, pair.second), pair.values, strict=True):
        label = value if len(value) <= LONGEST_LABEL else content.name
        header += [f"{label}: P_cross", f"{label}: P_onset", f"{label}: residual"]
    return Table(
        name=f"{pair.first.name}-{pair.second.name}",
        caption=f"{pair.first.name} ({pair.name} {pair.values[0]}) and {pair.second.name} "
        f"({pair.name} {pair.values[1]}) at their common cells, {_convention(pair)}.",
        header=tuple(header),
        rows=tuple(rows),
        numeric=frozenset({0, *range(2, len(header))}),
    )
