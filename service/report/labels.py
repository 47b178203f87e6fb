"""Is memorising random labels the right clock? The crossing with labels permuted on the task's own
inputs, beside the one with random labels on random inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from groktime.service.answers.crossing import CrossingAnswer
from groktime.service.report.content import SuiteContent
from groktime.service.report.document import Block, Paragraph, Table
from groktime.service.words import EN_DASH, count, estimate, plain, signed, whole


@dataclass(frozen=True)
class Clocks:
    """One prime by both kinds of labels."""

    random: CrossingAnswer
    permuted: CrossingAnswer

    @property
    def slowdown(self) -> tuple[float, ...]:
        """T_mem with permuted labels over T_mem with random ones, at widths that reached both."""
        usual = {point.width: point.value for point in self.random.curves.t_mem}
        return tuple(
            point.value / known
            for point in self.permuted.curves.t_mem
            if point.value is not None and (known := usual.get(point.width)) is not None
        )

    @property
    def factor(self) -> float | None:
        """How far apart the crossings lie; at least so far, where one lies above all widths."""
        first = self.random.p_cross.estimate
        second = self.permuted.p_cross.estimate or self.above
        return None if first is None or second is None else second / first

    @property
    def above(self) -> int | None:
        """The largest P at which permuted labels are memorised later than the task is learnt."""
        if self.permuted.status != "mem_always_slower":
            return None
        learnt = {p.width for p in self.permuted.curves.t_gen if p.value is not None}
        return max(p.params for p in self.permuted.curves.t_mem if p.width in learnt)


def clocks(content: SuiteContent) -> list[Clocks]:
    """Primes with a crossing by random labels and an answer by permuted ones."""
    usual = {
        panel.crossing.prime: panel.crossing for part in content.settings for panel in part.panels
    }
    return [
        Clocks(usual[answer.prime], answer)
        for answer in content.permuted
        if answer.prime in usual and usual[answer.prime].p_cross.estimate is not None
    ]


def label_sentences(content: SuiteContent) -> Iterator[str]:
    """What the other clock says, in two sentences; nothing for a suite with one kind of labels."""
    found = clocks(content)
    if not found:
        return
    ratios = [ratio for one in found for ratio in one.slowdown]
    if ratios:
        yield (
            "Permuted labels on the task's own inputs are memorised in "
            f"{span_text(ratios)} times the epochs of random labels "
            f"({count(len(ratios), 'width')} trained with both)."
        )
    placed = [one for one in found if one.permuted.p_cross.estimate is not None]
    above = [one for one in found if one.above is not None]
    told = []
    if placed:
        factors = [one.factor for one in placed if one.factor is not None]
        told.append(f"lies at {span_text(factors)} times the usual one at p = {_primes(placed)}")
    if above:
        factors = [one.factor for one in above if one.factor is not None]
        told.append(
            f"lies above every width trained at p = {_primes(above)}: beyond "
            f"{span_text(factors)} times the usual one"
        )
    if told:
        yield f"By permuted labels the crossing {', and '.join(told)}."


def span_text(values: Sequence[float]) -> str:
    """One number, or the least and the largest."""
    low, high = plain(min(values), 2), plain(max(values), 2)
    return low if low == high else f"{low} to {high}"


def _primes(found: Sequence[Clocks]) -> str:
    return ", ".join(str(one.random.prime) for one in found)


def label_blocks(content: SuiteContent) -> Iterator[Block]:
    """The sentences, and both crossings of every prime."""
    found = clocks(content)
    if not found:
        return
    yield Paragraph(" ".join(label_sentences(content)))
    yield Table(
        name=f"{content.name}-labels",
        caption=f"{content.name}: P_cross by the labels of the speed runs, and the median ratio of "
        "T_mem at widths trained with both. T_gen and the onset are the same.",
        header=("p", "random labels", "permuted labels", "apart, dex", "T_mem ratio", "widths"),
        rows=tuple(_row(one) for one in found),
        numeric=frozenset(range(6)),
    )


def _row(one: Clocks) -> tuple[str, ...]:
    first, second = one.random.p_cross, one.permuted.p_cross
    permuted = estimate(second.estimate, second.low, second.high)
    apart = None if one.factor is None else float(np.log10(one.factor))
    beyond = "" if one.above is None else "> "
    ratios = one.slowdown
    return (
        str(one.random.prime),
        estimate(first.estimate, first.low, first.high),
        permuted if one.above is None else f"> {whole(one.above)}",
        EN_DASH if apart is None else f"{beyond}{signed(apart)}",
        plain(float(np.median(ratios)), 2) if ratios else EN_DASH,
        str(len(ratios)),
    )
