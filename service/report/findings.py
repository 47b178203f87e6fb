"""What was found, in a minute: the sentences that answer the question, suite by suite."""

from __future__ import annotations

from collections.abc import Sequence

from dashboard.numbers import count
from service.report.content import SuiteContent
from service.report.document import Block, Bullets, Paragraph
from service.report.laws import c_model, c_model_text
from service.report.pairs import Pair, pair_sentences
from service.report.scope import cost
from service.report.swept import across, beside_settings, by_setting, swept
from service.report.verdict import (
    apart,
    baselines,
    calibration,
    capacity,
    last_batch,
    law,
    other_clock,
    papers_way,
    prediction,
)


def findings(chapters: Sequence[SuiteContent], found: Sequence[Pair]) -> list[Block]:
    """The answers of every chapter, then what moves between suites that differ in one setting."""
    blocks: list[Block] = []
    for content in chapters:
        answer = content.answer
        blocks.append(Paragraph(_heading(content)))
        if answer is None:
            continue
        blocks.append(
            Bullets(
                (
                    " ".join(prediction(answer)),
                    next(iter(calibration(answer))),
                    *by_setting(content),
                    *baselines(answer),
                    *beside_settings(answer),
                    *(across(answer) if swept(answer) else ()),
                    *apart(answer.apart),
                    *last_batch(answer),
                    *papers_way(content),
                    *other_clock(content),
                    *capacity(content),
                    *law(content),
                )
            )
        )
    if found:
        blocks.append(Paragraph("Suites that differ in one setting:"))
        blocks.append(Bullets(tuple(pair_sentences(found))))
    several = not_one_capacity(chapters)
    if several:
        blocks.append(Paragraph(several))
    return blocks


def not_one_capacity(chapters: Sequence[SuiteContent]) -> str:
    """Fitted values of C_model whose intervals exclude each other, if there are any."""
    known: list[str] = []
    lows: list[float] = []
    highs: list[float] = []
    for content in chapters:
        for part in content.settings:
            bits = c_model(content, part)
            if bits is None or bits.source != "fitted" or bits.low is None or bits.high is None:
                continue
            if (bits.low, bits.high) in zip(lows, highs, strict=True):
                continue  # the same runs again, in a suite that inherits them
            known.append(f"{c_model_text(bits)} in {content.name}")
            lows.append(bits.low)
            highs.append(bits.high)
    if not known or max(lows) <= min(highs):
        return ""
    values = ", ".join(known)
    return f"C_model differs between suites, as do their primes, widths and sets: {values}."


def _heading(content: SuiteContent) -> str:
    answer = content.answer
    if answer is None:
        return f"{content.name}: nothing can be said ({content.tests[content.main]})."
    primes = count(len(content.summary.primes), "prime")
    paid = cost(content.training).removeprefix("Cost: ").rstrip(".")
    return f"{content.name} ({primes}, {answer.n} of {answer.n_total} cells; {paid}):"
