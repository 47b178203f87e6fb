"""Several suites side by side: the same numbers of each, by method and clock, and in pairs."""

from __future__ import annotations

from collections.abc import Sequence

from dashboard.numbers import EN_DASH
from service.answers.law import Fit
from service.answers.making import BitsPerParameter
from service.report.content import CONVENTIONS, SuiteContent
from service.report.document import Block, Table
from service.report.laws import c_model, c_model_text
from service.report.pairs import Pair, pair_table
from service.report.scope import cost
from service.report.testing import HEADLINES, HEADLINES_EXPLAINED, headline
from service.report.words import real, setting_or


def comparison(contents: Sequence[SuiteContent], found: Sequence[Pair]) -> list[Block]:
    """Headlines by suite and convention, constants by suite, and pairs cell by cell."""
    return [_headlines(contents), _constants(contents), *(pair_table(pair) for pair in found)]


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
                    EN_DASH if bits is None else f"{c_model_text(bits)} ({bits.source})",
                    EN_DASH if law is None or bits is None else _exponent(law, bits),
                    cost(content.training).removeprefix("Cost: ").rstrip("."),
                )
            )
    return Table(
        name="suites-constants",
        caption="Bits per parameter, the exponent of T_mem = b·exp(a·f), and cost by suite. "
        "f = K_mem / (C_model·P) depends on the C_model in use; a / C_model, the exponent of "
        "K_mem / P, does not, but for the window of f that is fitted.",
        header=("suite", "setting", "positions", "C_model", "a / C_model", "cost"),
        rows=tuple(rows),
    )


def _exponent(law: Fit, bits: BitsPerParameter) -> str:
    low, high = (None if end is None else end / bits.value for end in (law.a_low, law.a_high))
    return real(law.a / bits.value, low, high)
