"""The verdict of a suite and the findings of a report: what is said, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from groktime.service.analysis.inputs import finite
from groktime.service.answers.cell_tests import CellRow, CellTests
from groktime.service.answers.laws import LawAnswer
from groktime.service.answers.verdicts import MORRIS_BITS, PAPER_BITS
from groktime.service.report.comparison import Pair, pair_sentences
from groktime.service.report.content import (
    CONVENTIONS,
    Convention,
    SettingContent,
    SuiteContent,
    cost,
    missing_sentence,
)
from groktime.service.report.document import Block, Bullets, Paragraph
from groktime.service.report.labels import label_sentences
from groktime.service.report.laws import (
    c_model,
    c_model_text,
    collapse_sentence,
    falls,
    form_sentence,
    protocol_sentences,
)
from groktime.service.report.predictions import (
    across,
    apart,
    baselines,
    beside_settings,
    by_setting,
    calibration,
    last_batch,
    median_bounds,
    prediction,
    rank_text,
    resolved,
    swept,
    within,
)
from groktime.service.words import (
    ADVICE,
    advice_text,
    convention_text,
    count,
    offset,
    plain,
    real,
    sentence,
    setting_text,
    signed,
    span,
)

FEW_SEEDS = 5


def findings(chapters: Sequence[SuiteContent], found: Sequence[Pair]) -> list[Block]:
    """The answers of every chapter, then what moves between suites that differ in one setting."""
    blocks: list[Block] = []
    for content in chapters:
        answer = content.answer
        blocks.append(Paragraph(_heading(content)))
        if answer is None:
            measured = protocol_sentences(content)
            blocks += [Bullets(tuple(measured))] if measured else []
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
                    *apart(answer.tests.apart),
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


def _heading(content: SuiteContent) -> str:
    answer = content.answer
    paid = cost(content.training).removeprefix("Cost: ").rstrip(".")
    if content.capacity_alone:
        return f"{content.name} (bits per parameter alone; {paid}):"
    if answer is None:
        return f"{content.name}: nothing can be said ({content.tests[content.main]})."
    primes = count(len(content.summary.primes), "prime")
    return f"{content.name} ({primes}, {answer.n} of {answer.n_total} cells; {paid}):"


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
            known.append(f"{c_model_text(bits)} in {content.name}{_at(part)}")
            lows.append(bits.low)
            highs.append(bits.high)
    if not known or max(lows) <= min(highs):
        return ""
    values = ", ".join(known)
    return f"C_model differs with what it was measured on: {values}."


def _at(part: SettingContent) -> str:
    name = setting_text(part.setting, "")
    return f" at {name}" if name else ""


def verdict(content: SuiteContent) -> dict[str, tuple[str, ...]]:
    """Both of the appendix's questions, the constants, and what the runs cannot say, by heading."""
    answer = content.answer
    if answer is None:
        measured = protocol_sentences(content)
        return {"": tuple(measured) or (f"Nothing can be said: {content.tests[content.main]}.",)}
    return {
        "": (
            *label_sentences(content),
            *prediction(answer),
            *calibration(answer),
            *baselines(answer),
            *apart(answer.tests.apart),
            *last_batch(answer),
            *(sentence(note) for note in answer.notes),
        ),
        "Within settings and across them": (
            *within(answer),
            *beside_settings(answer),
            *across(answer),
        ),
        "By other rules and clocks": (*papers_way(content), *other_clock(content)),
        "Capacity and the law of memorising": (*capacity(content), *law(content)),
        "What these runs cannot say": tuple(limits(content, answer)),
    }


def verdict_blocks(content: SuiteContent) -> tuple[Block, ...]:
    """The verdict as a report shows it: a list below each heading."""
    blocks: list[Block] = []
    for heading, sentences in verdict(content).items():
        if heading and sentences:
            blocks.append(Paragraph(f"{heading}:"))
        if sentences:
            blocks.append(Bullets(sentences))
    return tuple(blocks)


def papers_way(content: SuiteContent) -> Iterator[str]:
    """The same runs by the paper's conventions, beside what it printed."""
    chosen: Convention = ("paper", "online")
    answer = content.by(chosen)
    if answer is None:
        return
    printed = {} if content.reference is None else content.reference.tests
    parts = []
    for test, label, ours, show in _paper_numbers(answer):
        theirs = printed.get(test)
        beside = "" if theirs is None or theirs.statistic is None else show(theirs.statistic)
        parts.append(f"{label} {ours}" + (f" beside {beside}" if beside else ""))
    if not parts:
        return
    cells = f"{answer.n} of {answer.n_total} cells"
    seeds = span(sorted({c.seeds.grok for c in answer.cells}))
    whose = "By the paper's conventions"
    if content.reference is not None:
        whose += ", beside what it printed"
        whose += "" if content.reference.same_model else " for another model"
        cells += f"; the paper's {next(iter(printed.values())).cells}" if printed else ""
    yield f"{whose}: {', '.join(parts)} ({cells}).{_onset_steps(answer, seeds)}"


def _paper_numbers(
    answer: CellTests,
) -> Iterator[tuple[str, str, str, Callable[[float], str]]]:
    """The paper's name of a test, our label, our number, and how theirs is printed."""
    tests = answer.tests
    if tests.spearman is not None:
        yield "spearman", "ρ", rank_text(answer), plain
    if (line := tests.line) is not None:
        bounds = finite(line.slope_low), finite(line.slope_high)
        yield "ols_slope", "slope", real(finite(line.slope), *bounds), plain
    if tests.wilcoxon is not None:
        yield "wilcoxon", "median residual", offset(*median_bounds(answer)), signed


def _onset_steps(answer: CellTests, seeds: str) -> str:
    """How coarse the paper's onset is: it is always one of the widths, and moves with seeds."""
    steps = [s for c in answer.cells if (s := c.onset_step) is not None]
    if not steps:
        return ""
    low, high = (f"{end:.2f}" for end in (min(steps), max(steps)))
    apart = low if low == high else f"{low} to {high}"
    return (
        f" This onset is always a trained width, {apart} dex above the next, and moves up with the "
        f"number of seeds ({seeds} here): agreement within that step means no more."
    )


def other_clock(content: SuiteContent) -> Iterator[str]:
    """Both methods on the clock that is not the suite's own."""
    for chosen in CONVENTIONS:
        answer = content.by(chosen)
        if chosen[1] == content.main[1] or answer is None:
            continue
        name = f"By the {convention_text(*chosen)}"
        cells = f"{answer.n} of {answer.n_total} cells have a crossing and an onset"
        if resolved(answer):
            yield (
                f"{name}: ρ {rank_text(answer)}, median residual "
                f"{offset(*median_bounds(answer))} ({cells})."
            )
        else:
            yield f"{name}, not testable with these widths: {cells}{_out_of_sight(answer)}."


def _out_of_sight(answer: CellTests) -> str:
    """On which side of the trained widths crossings and onsets are."""
    faster = sum(c.crossing_status == "mem_always_faster" for c in answer.cells)
    edge = sum(c.at_edge for c in answer.cells)
    told = {
        "memorisation is faster wherever the order is known": faster,
        "the closest approach is at an end of the widths": edge,
        "the delay is there at the narrowest width that fits its training set": answer.n_at_floor,
        "no delay is seen below the widest width": answer.n_at_cap,
    }
    return "".join(f"; {words} in {cells}" for words, cells in told.items() if cells)


def capacity(content: SuiteContent) -> Iterator[str]:
    """C_model beside the published values; settings that have none of their own in one sentence."""
    unmeasured = []
    borrowed: list[tuple[str, str]] = []
    for part in content.settings:
        bits = c_model(content, part)
        if bits is None:
            continue
        where = _at(part)
        if bits.source == "paper":
            unmeasured.append(setting_text(part.setting, ""))
            continue
        text = c_model_text(bits)
        low = "; it may be too low (see Capacity)" if falls(part) else ""
        if bits.source == "matched_suite":
            told = f"is not measured here; {text} of {bits.suite} is used{low}."
            borrowed.append((setting_text(part.setting, ""), told))
            continue
        said = []
        if bits.low is not None and bits.high is not None:
            for value, whose in ((PAPER_BITS, "the paper's"), (MORRIS_BITS, "Morris et al.'s")):
                inside = "contains" if bits.low <= value <= bits.high else "excludes"
                said.append(f"{inside} {whose} {value:g}")
        told = f": the interval {' and '.join(said)}" if said else ", without an interval"
        yield f"C_model{where} is {text} bits per parameter{told}{low}."
    for names, told in _shared(borrowed):
        yield f"C_model{f' at {names}' if names else ''} {told}"
    if unmeasured:
        where = f" at {', '.join(unmeasured)}" if any(unmeasured) else ""
        yield f"C_model{where} is not measured; the paper's {PAPER_BITS:g} is used."


def law(content: SuiteContent) -> Iterator[str]:
    """The law of T_mem at each setting; settings that share their speed runs in one sentence."""
    found = [
        (setting_text(part.setting, ""), _law(part.law))
        for part in content.settings
        if not isinstance(part.law, str)
    ]
    for names, told in _shared(found):
        yield f"At {names}: {told}" if names else told


def _law(found: LawAnswer) -> str:
    pooled = found.pooled
    if pooled is None:
        return "T_mem's law is not testable: too few widths inside the window of f."
    return (
        f"T_mem = b·exp(a·f), C_model in f {plain(found.c_model.value)}, fits with "
        f"a = {real(pooled.a, pooled.a_low, pooled.a_high)} and R² {plain(pooled.r_squared)} over "
        f"{count(pooled.n, 'width')}; {form_sentence(found)}. {collapse_sentence(found)}"
    )


def _shared(told: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Each sentence once, with the names of all that it is true of, in order of appearance."""
    names: dict[str, list[str]] = {}
    for name, said in told:
        names.setdefault(said, []).append(name)
    for said, which in names.items():
        yield ", ".join(filter(None, which)), said


def limits(content: SuiteContent, answer: CellTests) -> Iterator[str]:
    """What the runs cannot say."""
    lost = answer.n_total - answer.n
    if lost:
        cells = f"{count(lost, 'cell')} of {answer.n_total}"
        yield f"{cells} without a crossing or an onset: not pooled."
    if answer.n_at_floor or answer.n_at_cap:
        yield (
            f"{count(answer.n_at_floor, 'onset')} at the narrowest width that fits its training "
            f"set and {answer.n_at_cap} at the widest or above it: these bound the onset on one "
            "side only."
        )
    few = sum(
        1 for c in answer.cells if c.few_seeds or min(c.seeds.speed, c.seeds.grok) < FEW_SEEDS
    )
    if few:
        yield (
            f"{count(few, 'cell')} with fewer than {FEW_SEEDS} seeds at a width beside the "
            "crossing: intervals are rough there, or missing."
        )
    yield from _coarse(answer)
    yield from _next_runs(answer)
    yield from missing_sentence(content.coverage)


def _coarse(answer: CellTests) -> Iterator[str]:
    """Crossings whose place between two widths the interval may not cover."""
    crossed = [c for c in answer.cells if c.bracket is not None]
    coarse = [c for c in crossed if c.bracket is not None and c.bracket.coarse]
    if coarse:
        which = ", ".join(_cell_name(c) for c in coarse)
        yield (
            f"{len(coarse)} of {count(len(crossed), 'crossing')} are coarse ({which}): T_mem "
            "changes more than threefold between the speed widths around them, or was not reached "
            "at one, and their intervals may be too short."
        )


def _next_runs(answer: CellTests) -> Iterator[str]:
    """What would place the crossings better, cells with the same need together."""
    asked: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for cell in answer.cells:
        if (advice := cell.advice) is not None:
            needing = asked.setdefault((advice.kind, advice.why), [])
            needing.append((_cell_name(cell), advice.width))
    told = []
    for (kind, why), cells in asked.items():
        if len(cells) == 1:
            ((name, width),) = cells
            told.append(f"{name}, {advice_text(kind, width, why)}")
        else:
            where = ", ".join(f"{name} at d = {width}" for name, width in cells)
            told.append(f"{ADVICE[kind]} ({why}): {where}")
    if told:
        yield f"To place crossings better, train next: {'; '.join(told)}."


def _cell_name(cell: CellRow) -> str:
    name = setting_text(cell.setting, "")
    return f"p = {cell.prime}" + (f" ({name})" if name else "")
