"""Several suites side by side: the same numbers of each, by method and clock, and in pairs."""

from __future__ import annotations

from collections.abc import Sequence

from dashboard.numbers import EN_DASH
from service.answers.law import Fit
from service.answers.making import BitsPerParameter
from service.report.content import CONVENTIONS, SuiteContent
from service.report.document import Block, Table
from service.report.laws import c_model, c_model_source, c_model_text
from service.report.pairs import Pair, pair_table
from service.report.scope import cost
from service.report.testing import HEADLINES, HEADLINES_EXPLAINED, headline
from service.report.words import estimate, real, setting_or, signed


def comparison(contents: Sequence[SuiteContent], found: Sequence[Pair]) -> list[Block]:
    """Headlines by suite and convention, constants by suite, and pairs cell by cell."""
    tables: list[Block] = [_headlines(contents), _constants(contents)]
    tables += [pair_table(pair) for pair in found]
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
                    setting_or(part.setting, "all cells"),
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


def _exponent(law: Fit, bits: BitsPerParameter) -> str:
    low, high = (None if end is None else end / bits.value for end in (law.a_low, law.a_high))
    return real(law.a / bits.value, low, high)


def _cells(contents: Sequence[SuiteContent]) -> Table:
    """P_cross, P_onset and residual of every suite at each prime and setting."""
    answers = [(content.name, content.answer) for content in contents]
    keys = dict.fromkeys(
        (cell.prime, setting_or(cell.setting, "all"))
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
                (c for c in cells if (c.prime, setting_or(c.setting, "all")) == (prime, setting)),
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
