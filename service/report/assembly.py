"""Puts a report together, sections in the order of the paper's appendix, and writes it: Markdown,
one HTML page, LaTeX, exact numbers and figures.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Connection

from groktime.service.analysis.capacity import BitsPerParameter
from groktime.service.answers.capacity import CapacityAnswer
from groktime.service.answers.cell_tests import TestsAnswer, flat_answer
from groktime.service.answers.laws import DelayLawAnswer, LawAnswer
from groktime.service.answers.suites import TrainingAnswer
from groktime.service.answers.verdicts import bits_text
from groktime.service.errors import InputError
from groktime.service.report.comparison import comparison, pairs
from groktime.service.report.content import SettingContent, SuiteContent, gather, provenance, scope
from groktime.service.report.document import (
    Document,
    Picture,
    Section,
    latex,
    markdown,
    webpage,
)
from groktime.service.report.drawings import (
    Drawing,
    capacities_drawing,
    capacity_drawing,
    delay_drawing,
    law_drawing,
    prediction_drawing,
    render,
    residual_drawing,
    slug,
    threshold_drawing,
)
from groktime.service.report.laws import capacity_blocks, delay_law_blocks, law_blocks
from groktime.service.report.tables import (
    cell_tables,
    conventions_table,
    offset_blocks,
    pooled_tables,
    registration_blocks,
    within_tables,
)
from groktime.service.report.verdict import findings, verdict, verdict_blocks
from groktime.service.words import convention_text, setting_text

WORDS = (
    "P is the number of a network's parameters. T_mem(P) and T_gen(P) are the epochs until 99 % of "
    "random labels are memorised and until 99 % of unseen examples are right; P_cross is where the "
    "two curves meet. ΔE is the delay from fitting the training set to generalising, and P_onset "
    "the size from which it is positive; the residual is log₁₀(P_onset / P_cross), in dex "
    "(decades).",
    "Training accuracy is read on the online clock (during the epoch, dropout on: the paper's) or "
    "on the eval clock (after it, dropout off). The robust method uses medians over all seeds, "
    "runs stopped early included, every root, and a logistic onset; the paper's uses means over "
    "the seeds that arrived, the closest approach, and the smallest delay of any seed.",
)


@dataclass(frozen=True)
class Report:
    """The document and the figures that it shows, by the stems it names."""

    document: Document
    drawings: tuple[Drawing, ...]


def assemble(
    chapters: Sequence[SuiteContent], compared: Sequence[SuiteContent], command: str
) -> Report:
    """One chapter a suite; suites only compared appear side by side with them."""
    sections: list[Section] = []
    drawings: list[Drawing] = []
    everyone = [*chapters, *compared]
    found = pairs(everyone)
    sections.append(Section("Findings", 1, tuple(findings(chapters, found))))
    if len(everyone) > 1:
        blocks = comparison(everyone, found)
        pair = compared_figure(everyone)
        if pair is not None:
            drawings.append(pair[0])
            blocks.append(pair[1])
        sections.append(Section("Suites side by side", 1, tuple(blocks)))
    for content in chapters:
        parts, figures = _chapter(content, command)
        sections += parts
        drawings += figures
    names = " and ".join(content.name for content in chapters)
    summary = (
        "Memorisation and generalisation speeds of tiny transformers: do they cross where "
        "grokking starts? Generated from the runs in the database, with an interval wherever there "
        "are enough cells.",
        *WORDS,
    )
    return Report(Document(f"Report: {names}", summary, tuple(sections)), tuple(drawings))


def _chapter(content: SuiteContent, command: str) -> tuple[list[Section], list[Drawing]]:
    figures = [*prediction_figures(content), *setting_figures(content)]
    pictures = tuple(picture for _, picture in figures)
    sections = [
        Section(f"Suite {content.name}", 1, ()),
        Section("Scope", 2, tuple(scope(content))),
        Section("Fixed beforehand", 2, tuple(registration_blocks(content))),
        Section("Verdict", 2, verdict_blocks(content)),
        Section("Figures", 2, pictures),
        *(_of_capacity(content) if content.capacity_alone else _of_cells(content)),
        Section("Provenance", 2, tuple(provenance(content, command))),
    ]
    return sections, [drawing for drawing, _ in figures]


def _of_capacity(content: SuiteContent) -> list[Section]:
    return [Section("Capacity", 2, tuple(capacity_blocks(content)))]


def _of_cells(content: SuiteContent) -> list[Section]:
    return [
        Section("Cells", 2, tuple(cell_tables(content))),
        Section("Pooled tests", 2, tuple(pooled_tables(content))),
        Section("Method and clock", 2, (conventions_table(content),)),
        *([Section("The offset", 2, blocks)] if (blocks := tuple(offset_blocks(content))) else []),
        Section("Within a setting", 2, tuple(within_tables(content))),
        *_of_capacity(content),
        Section("Laws of the speeds", 2, tuple(law_blocks(content))),
        Section("Length of the delay", 2, tuple(delay_law_blocks(content))),
    ]


Figures = list[tuple[Drawing, Picture]]


def setting_figures(content: SuiteContent) -> Figures:
    """Delays, capacity and law of every setting; capacities of several in one figure first."""
    drawn: list[object] = []
    measured = [
        (setting_text(part.setting, "all"), part.capacity)
        for part in content.settings
        if not isinstance(part.capacity, str) and part.capacity.widths
    ]
    if content.capacity_alone and len(measured) > 1:
        together = Picture(
            slug(f"{content.name} capacities"),
            f"Capacity against P at every setting, with its line ({content.name}).",
            "Capacity against parameters by setting",
        )
        first = [(Drawing(together.stem, lambda: capacities_drawing(measured)), together)]
    else:
        first = []
    return first + [both for part in content.settings for both in _of_setting(content, part, drawn)]


def prediction_figures(content: SuiteContent) -> Figures:
    """Onset against crossing, and the residuals; nothing where no cell has both points."""
    answer = content.answer
    if answer is None or not answer.n:
        return []
    made = f"{content.name}, {convention_text(*content.main)}, {answer.n} of {answer.n_total} cells"
    onset = Picture(
        slug(f"{content.name} onset"),
        f"Predicted against empirical onset of grokking ({made}). Bars: interval of P_cross, "
        "bracket or interval of P_onset; hollow: onset at an end of the measured widths.",
        "Scatter of P_onset against P_cross with the line y = x",
    )
    residual = Picture(
        slug(f"{content.name} residual"),
        f"Residual log₁₀(P_onset / P_cross) against the prime and every swept axis ({made}).",
        "Residuals of the cells against the prime and the swept axes",
    )
    figures = [
        (Drawing(onset.stem, lambda: prediction_drawing([("", answer)])), onset),
        (Drawing(residual.stem, lambda: residual_drawing(answer)), residual),
    ]
    rows = content.by_threshold
    if len({row.t_mem for row in rows}) > 1:
        threshold = Picture(
            slug(f"{content.name} threshold"),
            "Residual of every cell against the accuracy on random labels that counts as memorised "
            f"({content.name}, {convention_text(*content.main)}); a cell is missing where its "
            "curves do not cross within the widths trained.",
            "Residuals of the cells against the threshold of T_mem",
        )
        figures.append((Drawing(threshold.stem, lambda: threshold_drawing(rows)), threshold))
    return figures


def _of_setting(content: SuiteContent, part: SettingContent, drawn: list[object]) -> Figures:
    """Delays, capacity and law of one setting; a capacity shared by settings is drawn once."""
    found: list[tuple[Drawing, Picture]] = []
    where = setting_text(part.setting, "")
    name = f"{content.name} {where}".strip()
    made = f"{name}, {convention_text(*content.main)}"
    if part.panels:
        delay = Picture(
            slug(f"{name} delay"),
            f"Generalisation delay (points, left axis) with T_mem and T_gen (lines, right axis) "
            f"against P, one panel per prime ({made}). Shading: fastest to slowest seed; arrows: "
            "not reached; triangles: lower bounds; grey band: interval of P_cross.",
            "Small multiples of delay and speeds against P",
        )
        panels = part.panels
        found.append((Drawing(delay.stem, lambda: delay_drawing(panels)), delay))
    capacity = part.capacity
    if not isinstance(capacity, str) and capacity.widths and capacity.setting not in drawn:
        drawn.append(capacity.setting)
        picture = Picture(
            slug(f"{name} capacity"),
            f"Left: bits memorised against the complexity of random-label sets. Right: capacity "
            f"against P with the fitted line, the paper's and Morris et al.'s ({made}).",
            "Capacity curves and capacity against parameters",
        )
        answer = capacity
        found.append((Drawing(picture.stem, lambda: capacity_drawing(answer)), picture))
    law = part.law
    if not isinstance(law, str) and law.points:
        picture = Picture(
            slug(f"{name} law"),
            f"T_mem against inverse capacity and against the capacity fraction f; "
            f"{bits_text(law.c_model)} ({made}). Shaded: the window of the fits.",
            "Time to memorise by prime, and its collapse on the capacity fraction",
        )
        chosen = law
        found.append((Drawing(picture.stem, lambda: law_drawing(chosen)), picture))
    return found


def compared_figure(contents: Sequence[SuiteContent]) -> tuple[Drawing, Picture] | None:
    """Onset against crossing in every suite that has cells with both."""
    answers = [(c.name, c.answer) for c in contents if c.answer is not None and c.answer.n]
    known = [(name, answer) for name, answer in answers if answer is not None]
    if not known:
        return None
    picture = Picture(
        "suites-onset",
        "Predicted against empirical onset of grokking in every suite compared.",
        "Scatter of P_onset against P_cross of several suites",
    )
    return Drawing(picture.stem, lambda: prediction_drawing(known)), picture


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,80}")


@dataclass(frozen=True)
class ReportOrder:
    """What is to be written: the suites of the chapters, those only compared, and where to."""

    suites: Sequence[str]
    compare: Sequence[str]
    folder: Path
    name: str = "report"

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InputError(
                f"--name = {self.name!r} is not accepted; letters, digits, - and _, no path"
            )
        twice = [s for s in self.compare if s in self.suites]
        if twice:
            raise InputError(f"--compare = {twice[0]!r} is already reported; name another suite")

    @property
    def command(self) -> str:
        """The command that writes this report."""
        compared = "".join(f" --compare {suite}" for suite in self.compare)
        named = "" if self.name == "report" else f" --name {self.name}"
        # Where to is the reader's choice, and the writer's folders are nobody's business.
        return f"groktime report {' '.join(self.suites)}{compared} --to DIR{named}"


def write_report(
    connection: Connection,
    order: ReportOrder,
    *,
    force: bool = False,
    step: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Write the report's files and return their paths; existing ones only with `force`.

    `step` is told what comes next, such as `drawing figure 3 of 12`.
    """
    if not force:
        _refuse_existing(order)

    def content(name: str) -> SuiteContent:
        step(f"analysing {name}")
        return gather(connection, name)

    chapters = [content(name) for name in dict.fromkeys(order.suites)]
    compared = [content(name) for name in dict.fromkeys(order.compare)]
    report = assemble(chapters, compared, order.command)
    files = _texts(report, order, [*chapters, *compared])
    figures = f"{order.name}-figures"
    pictures: dict[str, bytes] = {}
    for number, drawing in enumerate(report.drawings, 1):
        step(f"drawing figure {number} of {len(report.drawings)}")
        for kind, data in render(drawing).items():
            files[f"{figures}/{drawing.stem}.{kind}"] = data
            if kind == "svg":
                pictures[drawing.stem] = data
    files[f"{order.name}.html"] = webpage(report.document, pictures).encode()
    return [put_file(order.folder / path, data) for path, data in files.items()]


def _refuse_existing(order: ReportOrder) -> None:
    """Before any work: nobody's file is replaced unasked."""
    texts = [order.folder / f"{order.name}.{kind}" for kind in ("md", "html", "tex", "json")]
    for path in (*texts, order.folder / f"{order.name}-figures"):
        if path.exists() or path.is_symlink():
            raise InputError(
                f"--to: {path} exists; choose another folder or --name, or --force to replace it"
            )


def _texts(
    report: Report, order: ReportOrder, contents: Sequence[SuiteContent]
) -> dict[str, bytes]:
    figures = f"{order.name}-figures"
    exact = {content.name: numbers(content) for content in contents}
    return {
        f"{order.name}.md": markdown(report.document, figures).encode(),
        f"{order.name}.tex": latex(report.document, figures).encode(),
        f"{order.name}.json": (json.dumps(exact, indent=1, ensure_ascii=False) + "\n").encode(),
    }


def put_file(path: Path, content: bytes) -> Path:
    """Write a whole file or none; a link at its place is replaced, not followed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".groktime-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise InputError(f"--to: {path} cannot be written ({error.strerror})") from error
    return path


def numbers(content: SuiteContent) -> dict[str, Any]:
    """The report's numbers unrounded, as the answers have them."""
    reference = content.reference
    return {
        "suite": content.name,
        "revision": content.summary.revision,
        "convention": list(content.main),
        "verdict": [said for sentences in verdict(content).values() for said in sentences],
        "training": _plain(TrainingAnswer, content.training),
        "tests": {
            f"{method}/{clock}": answer
            if isinstance(answer, str)
            else _plain(TestsAnswer, flat_answer(answer))
            for (method, clock), answer in content.tests.items()
        },
        "delay_law": content.delay_law
        if isinstance(content.delay_law, str)
        else _plain(DelayLawAnswer, content.delay_law),
        "settings": [
            {
                "setting": dict(part.setting),
                "law": part.law if isinstance(part.law, str) else _plain(LawAnswer, part.law),
                "capacity": part.capacity
                if isinstance(part.capacity, str)
                else _plain(CapacityAnswer, part.capacity),
                "c_model": {m: _plain(BitsPerParameter, b) for m, b in part.c_model.items()},
                "p_mem": {p.crossing.prime: p.crossing.p_mem for p in part.panels},
            }
            for part in content.settings
        ],
        "published": None
        if reference is None
        else {
            "suite": reference.suite,
            "same_model": reference.same_model,
            "differences": list(reference.differences),
        },
    }


def _plain(kind: type[Any], answer: Any) -> Mapping[str, Any]:
    dumped: dict[str, Any] = TypeAdapter(kind).dump_python(answer, mode="json")
    return dumped
