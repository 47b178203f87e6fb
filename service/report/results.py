"""Results as pages: a front page, one page a suite, one of all suites, and the README's table.

`groktime report paper` writes them of every suite that has finished runs. `scripts/results` calls
`main` on a database that holds the recordings and nothing else, so that every number on these
pages can be computed again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, text

from groktime.db.engine import connect
from groktime.service.analysis.robustness import stratified_order
from groktime.service.answers.cell_tests import CellTests
from groktime.service.answers.question import NotEnough, reading
from groktime.service.answers.suites import undisturbed_hours
from groktime.service.answers.verdicts import PAPER_BITS, claims
from groktime.service.report.assembly import (
    WORDS,
    compared_figure,
    numbers,
    prediction_figures,
    put_file,
    setting_figures,
)
from groktime.service.report.comparison import (
    Pair,
    batching_blocks,
    pair_sentences,
    pair_table,
    pairs,
    protocols,
    refinements,
)
from groktime.service.report.content import (
    Convention,
    SuiteContent,
    description,
    gather,
    provenance,
    scope,
)
from groktime.service.report.curves import curve_figure, curve_table, regime_sentences
from groktime.service.report.document import (
    Block,
    Bullets,
    Command,
    Document,
    Paragraph,
    Picture,
    Section,
    Table,
    markdown,
)
from groktime.service.report.drawings import Drawing, render
from groktime.service.report.labels import clocks, label_blocks, span_text
from groktime.service.report.laws import (
    CENTRAL_DECAY,
    c_model,
    c_model_text,
    capacity_blocks,
    delay_law_blocks,
    law_blocks,
)
from groktime.service.report.paper import Drift, drifts, overall, pooled_cells, strata
from groktime.service.report.predictions import median_bounds, rank_text, swept
from groktime.service.report.tables import (
    cells_table,
    conventions_table,
    offset_blocks,
    pooled_tables,
    registration_blocks,
    within_tables,
)
from groktime.service.report.verdict import limits, verdict_blocks
from groktime.service.suites.loader import RELEASED, chain, load_suite, shipped_suites
from groktime.service.words import (
    EN_DASH,
    Evidence,
    axis_name,
    evidence,
    is_shown,
    plain,
    probability,
    setting_text,
    signed,
)

PAPER = "[arXiv 2605.09724](https://arxiv.org/abs/2605.09724)"
BEGIN, END = "<!-- findings: written by scripts/results -->", "<!-- end of findings -->"
EXPLORATORY = (
    "Results are exploratory unless a suite was frozen before its first run; its page says which. "
    "Widths and seeds were extended after looking at first results. The effect of the last batch "
    "was noticed in these same cells. p-values are not corrected across pages."
)
TRAINED = """
SELECT name FROM suites s WHERE EXISTS (
    SELECT FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
    WHERE sr.suite_id = s.id AND NOT sr.inherited AND r.state = 'done')
ORDER BY name
"""
MOST_ROWS = 10
EVAL: Convention = ("robust", "eval")
FEWEST_CELLS = 3  # with both points, for an offset to be a finding
OVERALL = "whole-paper"  # the page of all suites
# Suites whose findings make the table, in the order of its rows; others are set beside them.
CHAPTERS = (
    "central-narrow-widths-released",
    "central-balanced-released",
    "control_labels-two-cores-released",
    "capacity-protocols-released",
)


@dataclass(frozen=True)
class Finding:
    """One row of the table: a claim, the paper's number, ours, and a verdict of three words."""

    claim: str
    paper: str
    here: str
    verdict: str
    page: str
    section: str = "verdict"


def findings_table(
    chapters: Sequence[SuiteContent], found: Sequence[Pair], everyone: Sequence[SuiteContent] = ()
) -> list[Finding]:
    """What was found: the claim, the claim over all suites, what it rests on."""
    claimed = [one for one in chapters if one.answer is not None and not one.permuted]
    beneath = [one for one in chapters if one not in claimed]
    rows = [row for content in claimed for row in _suite_findings(content)]
    rows += _all_findings(everyone)
    rows += [row for content in beneath for row in _suite_findings(content)]
    rows += [row for pair in sorted(found, key=_smallest_p) for row in _pair_findings(pair)]
    return rows[:MOST_ROWS]


def _all_findings(everyone: Sequence[SuiteContent]) -> Iterator[Finding]:
    """The two questions of the paper's appendix, over every setting there is."""
    order = stratified_order(pooled_cells(everyone), "stratum") if everyone else None
    if order is not None and len(order.strata) > 1:
        pairs_there = order.in_order + order.out_of_order
        yield Finding(
            f"The same order within each of {len(order.strata)} settings",
            EN_DASH,
            f"{order.in_order} of {pairs_there} pairs of primes, {probability(order.p)}",
            "holds" if is_shown(order.p) else "not shown",
            OVERALL,
            "within-a-setting-the-order",
        )
    yield from _clock_findings(everyone)
    drifting = [drift for drift in drifts(everyone) if drift.trend.p_holm is not None]
    if drifting:
        moved = sum(is_shown(drift.trend.p_holm) for drift in drifting)
        printed = (
            f"{axis_name(drift.axis)} {signed(drift.printed.statistic, 2)} dex per unit"
            for drift in drifting
            if drift.printed is not None and drift.trend.slope is not None
        )
        here = (f"{_size(drift)}, {probability(drift.trend.p_holm)}" for drift in drifting)
        yield Finding(
            "Settings leave P_onset / P_cross as it is",
            "; ".join(printed) or EN_DASH,
            "; ".join(here),
            "it drifts" if moved == len(drifting) else f"{moved}/{len(drifting)} drift",
            OVERALL,
            "drift-along-each-axis",
        )


def _clock_findings(everyone: Sequence[SuiteContent]) -> Iterator[Finding]:
    """The offset on the eval clock, by the suite in which most cells have both points there."""
    found = [
        (answer.n, content, answer)
        for content in everyone
        if (answer := content.by(EVAL)) is not None and not swept(answer)
    ]
    most, content, answer = max(found, key=lambda one: one[0], default=(0, None, None))
    if content is None or answer is None or most < FEWEST_CELLS:
        return
    _, value, _ = claims(answer)
    yield Finding(
        f"{value['claim']}, with dropout off while accuracy is read ({most} primes)",
        EN_DASH,
        f"P_onset = {value['number'].replace('the crossing', 'P_cross')}",
        value["verdict"],
        content.name,
        "cells",
    )


def _smallest_p(pair: Pair) -> float:
    """Pairs that can show something come first."""
    moved = pair.moves("p_cross")
    return 1.0 if moved is None else moved.floor


def _suite_findings(content: SuiteContent) -> Iterator[Finding]:
    answer = content.answer
    if content.capacity_alone:
        yield from _paper_bits(content)
    if answer is None:
        return
    if content.permuted:
        yield from _label_findings(content)
        return
    if swept(answer):
        return
    primes = f"{answer.n} primes"
    order, value, information = claims(answer)
    if content.record.spec.get("batching") == "balanced":
        yield Finding(
            f"{information['claim']}, with batches of equal size ({primes})",
            EN_DASH,
            f"{information['number']}; ρ = {rank_text(answer)}",
            information["verdict"],
            content.name,
        )
        return
    offset = f"P_onset = {value['number'].replace('the crossing', 'P_cross')}"
    reference = content.reference
    if reference is None or reference.differences:  # nothing printed to compare it with
        there = f"{answer.cells[0].prime} to {answer.cells[-1].prime}"
        here = f"ρ = {rank_text(answer)}, {offset}"
        claim = f"Order and start at p = {there}"
        yield Finding(claim, EN_DASH, here, value["verdict"], content.name)
        return
    printed = {name: test.statistic for name, test in reference.tests.items()}
    yield Finding(
        f"{order['claim']} ({primes})",
        _told("ρ = ", printed.get("spearman")),
        f"ρ = {rank_text(answer)}",
        order["verdict"],
        content.name,
    )
    yield Finding(
        f"{value['claim']} ({primes})",
        _factor(printed.get("wilcoxon")),
        offset,
        value["verdict"],
        content.name,
    )
    yield Finding(
        f"{information['claim']} ({primes})",
        "not tested",
        information["number"],
        information["verdict"],
        content.name,
    )
    papers = content.by(("paper", "online"))
    if papers is not None:
        yield from _reproduced(content, papers, printed.get("wilcoxon"))


def _reproduced(
    content: SuiteContent, papers: CellTests, printed: float | None
) -> Iterator[Finding]:
    """The paper's conventions on our runs, beside the offset that it printed."""
    middle, low, high = median_bounds(papers)
    if middle is None or printed is None:
        return
    verdict = "not testable"
    if low is not None and high is not None:
        verdict = "reproduced" if low <= printed <= high else "differs"
    yield Finding(
        "Order and start by the paper's own rules",
        _factor(printed),
        f"P_onset = {10**middle:.2f} × P_cross, ρ = {rank_text(papers)}",
        verdict,
        content.name,
    )


def _told(name: str, value: float | None) -> str:
    return EN_DASH if value is None else f"{name}{plain(value)}"


def _factor(residual: float | None) -> str:
    return EN_DASH if residual is None else f"{10**residual:.2f} × P_cross"


def _paper_bits(content: SuiteContent) -> Iterator[Finding]:
    """Capacity at the weight decay of the networks, and at the one nearest to what was printed."""
    found = {
        part.setting.get("weight_decay"): bits
        for part in content.settings
        if (bits := c_model(content, part)) is not None and bits.low and bits.high
    }
    if len(found) < 2:
        return
    own = found.get(CENTRAL_DECAY)
    if own is None:
        return
    nearest = min(found, key=lambda decay: abs(found[decay].value - PAPER_BITS))
    here = c_model_text(own)
    if nearest != CENTRAL_DECAY:
        here += f"; {c_model_text(found[nearest])} with {setting_text({'weight_decay': nearest})}"
    inside = own.low is not None and own.high is not None and own.low <= PAPER_BITS <= own.high
    yield Finding(
        f"Bits stored per parameter with {setting_text({'weight_decay': CENTRAL_DECAY})}, as the "
        "networks train",
        plain(PAPER_BITS),
        here,
        "reproduced" if inside else f"{plain(own.value / PAPER_BITS, 2)} of it",
        content.name,
    )


def _size(drift: Drift) -> str:
    name, trend = axis_name(drift.axis), drift.trend
    if trend.slope is None:
        return f"{name} F = {plain(trend.f)}"
    return f"{name} {signed(trend.slope, 2)} dex per unit"


def _label_findings(content: SuiteContent) -> Iterator[Finding]:
    """Whether random labels are memorised as the task's own inputs are."""
    found = clocks(content)
    ratios = [ratio for one in found for ratio in one.slowdown]
    factors = [one.factor for one in found if one.factor is not None]
    if not ratios or not factors:
        return
    least = "at least " if any(one.above is not None for one in found) else ""
    yield Finding(
        "Random labels tell how fast the task's own inputs are memorised",
        "assumed",
        f"permuted labels take {span_text(ratios)} × as long, P_cross {least}"
        f"{span_text(factors)} × as large",
        "slower on them" if min(ratios) > 1 else "no clear shift",
        content.name,
        "labels",
    )


MOVED: Mapping[Evidence, str] = {
    "shown": "it moves",
    "hint": "it moves",
    "not shown": "not rejected",
    "not testable": "too few cells",
}


def _pair_findings(pair: Pair) -> Iterator[Finding]:
    """Two suites that differ in one setting: how far the crossing moves."""
    moved = pair.moves("p_cross")
    if moved is None:
        return
    yield Finding(
        f"{pair.change} leaves the crossing as it is",
        EN_DASH,
        f"P_cross {moved.median}, {moved.low} to {moved.high}, {probability(moved.p)}",
        MOVED[evidence(moved.p, moved.floor)],
        pair.first.name,
    )


def findings_markdown(rows: Sequence[Finding], folder: str) -> str:
    """The table as Markdown; each verdict leads to the page of its suite."""
    lines = ["| claim | paper | here | verdict |", "| --- | --- | --- | --- |"]
    for row in rows:
        link = f"[{row.verdict}]({folder}/{row.page}.md#{row.section})"
        cells = (row.claim, row.paper, row.here, link)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def in_readme(readme: str, table: str) -> str:
    """The README with a new table between its markers."""
    head, rest = readme.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n{table}\n{END}{tail}"


def suite_page(
    content: SuiteContent, found: Sequence[Pair], others: Sequence[SuiteContent] = ()
) -> tuple[Document, list[Drawing]]:
    """Question, answer, figures, tables, verdict, caveats, and how to run it again."""
    answer = content.answer
    figures = [*prediction_figures(content), *setting_figures(content)]
    own = [pair for pair in found if content.name in (pair.first.name, pair.second.name)]
    convention: Convention = content.main
    refined = tuple(refinements(content, others))
    if content.capacity_alone:
        return _capacity_page(content, others)
    if content.curves:
        return _curves_page(content)
    sections = [
        Section("Question", 1, (Paragraph(_question(content)),)),
        *([Section("Answer", 1, (_claims_table(content, answer),))] if answer else []),
        Section("Figures", 1, tuple(picture for _, picture in figures)),
        *([Section("Cells", 1, tuple(_cells(content, convention, answer)))] if answer else []),
        *([Section("Labels", 1, labels)] if (labels := tuple(label_blocks(content))) else []),
        *([Section("Before and after", 1, refined)] if refined else []),
        Section("Verdict", 1, verdict_blocks(content)),
        Section("Fixed beforehand", 1, tuple(registration_blocks(content))),
        Section("Caveats", 1, tuple(_caveats(content, answer))),
        *([Section("Beside other suites", 1, tuple(_beside(own)))] if own else []),
        Section(
            "All tests",
            1,
            (*pooled_tables(content), conventions_table(content), *within_tables(content)),
        ),
        *([Section("The offset", 1, blocks)] if (blocks := tuple(offset_blocks(content))) else []),
        Section("Capacity and speeds", 1, (*capacity_blocks(content), *law_blocks(content))),
        Section("Length of the delay", 1, tuple(delay_law_blocks(content))),
        Section("Scope", 1, tuple(scope(content))),
        Section("Run it again", 1, tuple(_again(content))),
    ]
    return _page(content, sections), [drawing for drawing, _ in figures]


def _capacity_page(
    content: SuiteContent, others: Sequence[SuiteContent]
) -> tuple[Document, list[Drawing]]:
    """A suite without cells: bits per parameter by setting."""
    figures = setting_figures(content)
    table, *notes = capacity_blocks(content)
    beside = tuple(protocols(content, others))
    sections = [
        Section("Question", 1, (Paragraph(description(content)),)),
        Section("Answer", 1, (table,)),
        Section("Verdict", 1, verdict_blocks(content)),
        Section("Figures", 1, tuple(picture for _, picture in figures)),
        Section("Fixed beforehand", 1, tuple(registration_blocks(content))),
        *([Section("Beside other protocols", 1, beside)] if beside else []),
        Section("The lines", 1, tuple(notes)),
        Section("Scope", 1, tuple(scope(content))),
        Section("Run it again", 1, tuple(_again(content))),
    ]
    return _page(content, sections), [drawing for drawing, _ in figures]


def _curves_page(content: SuiteContent) -> tuple[Document, list[Drawing]]:
    """A suite without speed runs: how training goes by width."""
    drawing, picture = curve_figure(content)
    sections = [
        Section("Question", 1, (Paragraph(description(content)),)),
        Section("Verdict", 1, (Bullets(tuple(regime_sentences(content))),)),
        Section("Figures", 1, (picture,)),
        Section("Runs", 1, (curve_table(content),)),
        Section("Fixed beforehand", 1, tuple(registration_blocks(content))),
        Section("Scope", 1, tuple(scope(content))),
        Section("Run it again", 1, tuple(_again(content))),
    ]
    return _page(content, sections), [drawing]


def _page(content: SuiteContent, sections: Sequence[Section]) -> Document:
    summary = ("Written by scripts/results from the recording of this suite.",)
    return Document(content.name, summary, tuple(sections))


def _question(content: SuiteContent) -> str:
    answer = content.answer
    if answer is not None and swept(answer):
        asked = f"Does grokking start at the crossing whatever the {swept(answer)}?"
    else:
        asked = "Does grokking start where memorising becomes faster than generalising?"
    return f"{asked} {description(content)}".strip()


def _about(content: SuiteContent) -> str:
    """One line for a list of pages."""
    if content.name.removesuffix(RELEASED) not in shipped_suites():
        return content.summary.description
    said = load_suite(content.name).file.description
    return f"{said}; no positions" if content.name.endswith(RELEASED) else said


def _claims_table(content: SuiteContent, answer: CellTests) -> Table:
    rows = tuple((c["claim"], c["number"], c["detail"], c["verdict"]) for c in claims(answer))
    return Table(
        name=f"{content.name}-claims",
        caption=f"{content.name}: the claim in three parts, {content.main[0]} method, "
        f"{content.main[1]} clock.",
        header=("claim", "here", "detail", "verdict"),
        rows=rows,
    )


def _cells(content: SuiteContent, chosen: Convention, answer: CellTests) -> Iterator[Block]:
    """By the suite's own convention, and by the eval clock where that can be told."""
    yield cells_table(content, chosen, answer)
    by_eval = content.by(EVAL)
    if chosen != EVAL and by_eval is not None and by_eval.n >= FEWEST_CELLS:
        yield cells_table(content, EVAL, by_eval)


def _caveats(content: SuiteContent, answer: CellTests | None) -> Iterator[Block]:
    yield Paragraph(EXPLORATORY)
    said = () if answer is None else tuple(limits(content, answer))
    if said:
        yield Bullets(said)


def _beside(found: Sequence[Pair]) -> Iterator[Block]:
    yield Bullets(tuple(pair_sentences(found)))
    for pair in found:
        yield from batching_blocks(pair)
        yield pair_table(pair)


def _again(content: SuiteContent) -> Iterator[Block]:
    facts, *_ = provenance(content, "")
    yield facts
    yield Paragraph("The recorded runs into a database of your own, and this suite's report:")
    files = (f"recordings/{name}.groktime" for name in (content.name, *_donors(content)))
    yield Command(
        (
            f"groktime db load {' '.join(files)}",
            f"groktime report {content.name} --to report/{content.name}",
        )
    )
    yield Paragraph(
        "To train what is missing of it; the first line tells how long that takes here:"
    )
    yield Command(
        (f"groktime sweep {content.name} --dry-run", f"groktime sweep {content.name}"),
        not_run="it trains for hours",
    )


def _donors(content: SuiteContent) -> list[str]:
    """The suites whose recordings hold the runs that this one inherits."""
    if content.name.removesuffix(RELEASED) not in shipped_suites():
        return []
    return [suite.name for suite in chain(load_suite(content.name)) if suite.name != content.name]


def front_page(
    rows: Sequence[Finding], contents: Sequence[SuiteContent], pictures: Sequence[Picture]
) -> str:
    """One screen: the table, the figures that carry the result, and the pages."""
    shown = "\n\n".join(
        f"![{picture.words}](results/figures/{picture.stem}.svg)\n\n*{picture.caption}*"
        for picture in pictures
    )
    pages = "\n".join(
        f"- [{content.name}](results/{content.name}.md): {_about(content)}" for content in contents
    )
    words = "\n\n".join(WORDS)
    together = f"[All suites on one page](results/{OVERALL}.md): the order within every setting, "
    together += "the offset across settings, and what it cost."
    return (
        "# Results\n\n"
        f"Does grokking start where memorising becomes faster than generalising ({PAPER})? Every "
        "number here is computed from `recordings/` by `scripts/results`."
        f"\n\n{EXPLORATORY}\n\n## Findings\n\n{findings_markdown(rows, 'results')}\n\n"
        f"## Figures\n\n{shown}\n\n## Pages\n\n- {together}\n{pages}\n\n## Words\n\n{words}\n"
    )


def result_files(connection: Connection) -> tuple[dict[str, bytes], list[Finding]]:
    """All pages and figures by their paths, and the findings of the front page."""
    chapters, compared = _suites(connection)
    everyone = [*chapters, *compared]
    found = pairs(everyone)
    rows = findings_table(chapters, found, everyone)
    files: dict[str, bytes] = {}
    drawings: dict[str, Drawing] = {}
    for content in everyone:
        document, figures = suite_page(content, found, everyone)
        files[f"results/{content.name}.md"] = markdown(document, "figures").encode()
        drawings |= {drawing.stem: drawing for drawing in figures}
    together, figures = overall(
        everyone, strata(connection, everyone), undisturbed_hours(connection)
    )
    drawings |= {drawing.stem: drawing for drawing in figures}
    files[f"results/{OVERALL}.md"] = markdown(together, "figures").encode()
    both = compared_figure(chapters)
    shown = [picture for _, picture in _carrying(chapters[0])]
    if both is not None:
        drawings[both[0].stem] = both[0]
        shown.insert(0, both[1])
    for stem, drawing in drawings.items():
        files[f"results/figures/{stem}.svg"] = render(drawing, ("svg",))["svg"]
    files["results.md"] = front_page(rows, everyone, shown).encode()
    exact = {content.name: numbers(content) for content in everyone}
    files["results.json"] = (json.dumps(exact, indent=1, ensure_ascii=False) + "\n").encode()
    return files, rows


def _suites(connection: Connection) -> tuple[list[SuiteContent], list[SuiteContent]]:
    """Suites with results, those with rows in the table of findings first."""
    there = list(connection.scalars(text(TRAINED)))
    if not there:
        raise NotEnough("suite", None, "suites with finished runs", "there is no finished run")
    chapters = [name for name in CHAPTERS if name in there] or there[:1]
    compared = [name for name in there if name not in chapters]
    first, second = ([gather(connection, name) for name in n] for n in (chapters, compared))
    return first, second


def _carrying(content: SuiteContent) -> list[tuple[Drawing, Picture]]:
    """The delays of the first suite: the figure that carries the result."""
    return [both for both in setting_figures(content) if both[1].stem.endswith("delay")][:1]


def main() -> None:
    """`python -m groktime.service.report.results ROOT` writes ROOT/docs and the README's table."""
    root = Path(sys.argv[1])
    engine = connect(role="reader")
    with reading(engine) as connection:
        connection.exec_driver_sql("SET statement_timeout = 0")
        files, rows = result_files(connection)
    engine.dispose()
    for path, data in files.items():
        put_file(root / "docs" / path, data)
    readme = root / "README.md"
    table = findings_markdown(rows, "docs/results")
    put_file(readme, in_readme(readme.read_text("utf-8"), table).encode())


if __name__ == "__main__":
    main()
