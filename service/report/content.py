"""Everything a report says about a suite: its answers in both methods and on both clocks, how far
and how densely it was trained, and with what.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Literal, TypeVar

import pandas as pd
from sqlalchemy import Connection

from groktime.db.records import SuiteRecord
from groktime.service.analysis import ANALYSIS_VERSION
from groktime.service.analysis.capacity import BitsPerParameter
from groktime.service.answers.capacity import CapacityAnswer, capacity, cell_bits
from groktime.service.answers.cell import cells, closed
from groktime.service.answers.cell_tests import (
    CellTests,
    Offset,
    ThresholdResidual,
    cell_tests,
    offsets,
    residuals_by_threshold,
)
from groktime.service.answers.context import cell_context
from groktime.service.answers.crossing import (
    CrossingAnswer,
    DelayAnswer,
    RegimesAnswer,
    SpeedsAnswer,
    crossing,
    crossing_of,
    delay_of,
    regimes_of,
    speeds_of,
)
from groktime.service.answers.forecast import Registration, registration
from groktime.service.answers.laws import (
    DelayLawAnswer,
    LawAnswer,
    LawForms,
    delay_law,
    law,
    law_forms,
)
from groktime.service.answers.question import (
    Method,
    NotEnough,
    Question,
    QuestionError,
    Setting,
    convention,
    read_capacity,
    read_runs,
    read_suite,
)
from groktime.service.answers.runs import RunCurve, run_curve
from groktime.service.answers.suites import (
    CellCoverage,
    CoverageAnswer,
    SuiteSummary,
    TrainingAnswer,
    coverage,
    suite_summary,
    training,
)
from groktime.service.answers.verdicts import Reference, find_reference, thresholds_text
from groktime.service.report.document import Block, Bullets, Command, Paragraph, Table
from groktime.service.spec import SETTING_COLUMNS
from groktime.service.suites.loader import RELEASED, load_suite, shipped_suites
from groktime.service.words import axis_name, count, setting_text, span, whole

Convention = tuple[Literal["robust", "paper"], Literal["online", "eval"]]
CONVENTIONS: tuple[Convention, ...] = (
    ("robust", "online"),
    ("robust", "eval"),
    ("paper", "online"),
    ("paper", "eval"),
)
MOST_CURVES = 24  # panels of one figure
CURVE_POINTS = 400
METHODS: tuple[Method, ...] = ("robust", "paper")
T = TypeVar("T")


@dataclass(frozen=True)
class Panel:
    """One cell's four answers: what its delay figure is drawn from."""

    delay: DelayAnswer
    crossing: CrossingAnswer
    speeds: SpeedsAnswer
    regimes: RegimesAnswer


@dataclass(frozen=True)
class Members:
    """The finished runs of one cell, by their ids."""

    speed: frozenset[int]
    grok: frozenset[int]

    def __len__(self) -> int:
        return len(self.speed) + len(self.grok)


@dataclass(frozen=True)
class SettingContent:
    """One setting of the swept axes over its primes; a text says why there is no answer."""

    setting: Setting
    panels: tuple[Panel, ...]
    c_model: Mapping[str, BitsPerParameter]  # by method; empty where no cell could be read
    law: LawAnswer | str
    capacity: CapacityAnswer | str


@dataclass(frozen=True)
class SuiteContent:
    """One suite at one revision."""

    record: SuiteRecord
    summary: SuiteSummary
    coverage: CoverageAnswer
    training: TrainingAnswer
    main: Convention
    tests: Mapping[Convention, CellTests | str]
    settings: tuple[SettingContent, ...]
    reference: Reference | None
    registration: Registration
    delay_law: DelayLawAnswer | str
    law_forms: tuple[LawForms, ...]
    offsets: tuple[Offset, ...]
    by_threshold: tuple[ThresholdResidual, ...]
    members: Mapping[tuple[int, str], Members]  # by prime and words of the setting
    permuted: tuple[CrossingAnswer, ...] = ()  # by permuted labels, where the suite has both kinds
    curves: tuple[RunCurve, ...] = ()  # by width, of a suite that only shows training

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def answer(self) -> CellTests | None:
        """The tests by the suite's own convention, None where it has none."""
        found = self.tests[self.main]
        return None if isinstance(found, str) else found

    @property
    def capacity_alone(self) -> bool:
        """Does the suite measure bits per parameter and nothing else?"""
        return not self.summary.primes

    def by(self, chosen: Convention) -> CellTests | None:
        found = self.tests[chosen]
        return None if isinstance(found, str) else found


def gather(connection: Connection, name: str) -> SuiteContent:
    """Put all questions of a report to one suite; refuses a suite without any finished run."""
    record = read_suite(connection, name)
    summary = suite_summary(connection, record, record.name)
    runs = read_runs(connection, record)
    trained = [*runs["state"], *read_capacity(connection, record)["state"]]
    if not {"done", "failed"} & set(trained):
        raise NotEnough(
            "suite", name, "a suite with finished runs", f"{name} has no finished run to report"
        )
    usual_question = Question(suite=name)
    usual = convention(record.analysis, usual_question)
    main: Convention = (usual.method, usual.clock)
    tests: dict[Convention, CellTests | str] = {}
    for method, clock in CONVENTIONS:
        question = Question(suite=name, method=method, clock=clock)
        tests[method, clock] = said(partial(cell_tests, connection, question))
    found = tests[main]
    settings = () if isinstance(found, str) else distinct_settings(found)
    return SuiteContent(
        record=record,
        summary=summary,
        coverage=coverage(connection, record),
        training=training(connection, record),
        main=main,
        tests=tests,
        settings=tuple(_setting(connection, name, setting, found) for setting in settings)
        or tuple(_capacity_settings(connection, name)),
        reference=find_reference(runs, tuple(summary.axes)),
        registration=registration(connection, record),
        law_forms=()
        if isinstance(found, str) or found.axes
        else law_forms(connection, usual_question),
        offsets=() if isinstance(found, str) else offsets(connection, usual_question),
        by_threshold=()
        if isinstance(found, str)
        else residuals_by_threshold(connection, usual_question),
        delay_law=said(partial(delay_law, connection, Question(suite=name))),
        members=_members(runs),
        permuted=tuple(_permuted(connection, name, summary)),
        curves=tuple(_curves(connection, runs)),
    )


def _curves(connection: Connection, runs: pd.DataFrame) -> Iterator[RunCurve]:
    """Without speed runs there is no crossing to ask for: then training itself is the subject."""
    if not len(runs) or "speed" in set(runs["kind"]) or len(runs) > MOST_CURVES:
        return
    for run in runs.loc[runs["state"] == "done"].sort_values(["width", "seed"])["run_id"]:
        yield run_curve(connection, int(run), points=CURVE_POINTS)


def _members(runs: pd.DataFrame) -> dict[tuple[int, str], Members]:
    if not len(runs):
        return {}
    return {
        (cell.prime, setting_text(cell.setting)): Members(
            *(frozenset(closed(kind)[0]["run_id"].astype(int)) for kind in (cell.speed, cell.grok))
        )
        for cell in cells(runs, {}, None)
    }


def _permuted(connection: Connection, name: str, summary: SuiteSummary) -> Iterator[CrossingAnswer]:
    """The crossing of every prime by permuted labels, beside a suite's random ones."""
    if summary.axes or not {"random", "shuffled"} <= set(summary.labels):
        return
    for prime in summary.primes:
        question = Question(suite=name, prime=prime, labels="shuffled")
        answer = said(partial(crossing, connection, question))
        if not isinstance(answer, str):
            yield answer


def said(compute: Callable[[], T]) -> T | str:
    """The answer, or the sentence why the runs cannot give it."""
    try:
        return compute()
    except QuestionError as refusal:
        return str(refusal)


def distinct_settings(answer: CellTests) -> tuple[Setting, ...]:
    """Settings of the swept axes in the order of the cells."""
    return tuple(
        {tuple(sorted(c.setting.items(), key=str)): c.setting for c in answer.cells}.values()
    )


def _setting(
    connection: Connection, name: str, setting: Setting, answer: CellTests | str
) -> SettingContent:
    assert not isinstance(answer, str)
    filters = {axis: value for axis, value in setting.items() if axis in SETTING_COLUMNS}
    primes = [c.prime for c in answer.cells if c.setting == setting]
    question = Question(suite=name, filters=filters)
    panels = (said(partial(_panel, connection, name, prime, filters)) for prime in primes)
    return SettingContent(
        setting=setting,
        panels=tuple(panel for panel in panels if not isinstance(panel, str)),
        c_model=_bits(connection, name, primes, filters),
        law=said(partial(law, connection, question)),
        capacity=said(partial(_capacity, connection, name, filters)),
    )


def _capacity_settings(connection: Connection, name: str) -> Iterator[SettingContent]:
    """Settings of a suite that measures capacity alone, by their values."""
    first = said(partial(capacity, connection, Question(suite=name)))
    if isinstance(first, str):
        return
    others = () if first.chosen is None else first.chosen.other_settings
    for setting in sorted((first.setting, *others), key=_by_value):
        found: dict[str, CapacityAnswer] = {}
        for method in METHODS:
            question = Question(suite=name, filters=setting, method=method)
            answer = said(partial(capacity, connection, question))
            if not isinstance(answer, str):
                found[method] = answer
        if found:
            yield SettingContent(
                setting=setting,
                panels=(),
                c_model={method: answer.c_model for method, answer in found.items()},
                law="the suite has no cells",
                capacity=found.get("robust") or next(iter(found.values())),
            )


def _by_value(setting: Setting) -> list[tuple[str, bool, float, str]]:
    """Numbers in their order, words after them."""
    return [
        (
            axis,
            isinstance(value, str),
            0.0 if isinstance(value, str | None) else float(value),
            str(value),
        )
        for axis, value in sorted(setting.items())
    ]


def _bits(
    connection: Connection, name: str, primes: list[int], filters: Setting
) -> dict[str, BitsPerParameter]:
    """C_model of the setting in both methods, as its cells use it."""
    found: dict[str, BitsPerParameter] = {}
    for method in METHODS:
        question = Question(suite=name, prime=primes[0], filters=filters, method=method)
        bits = said(partial(_cell_bits, connection, question))
        if not isinstance(bits, str):
            found[method] = bits
    return found


def _cell_bits(connection: Connection, question: Question) -> BitsPerParameter:
    return cell_bits(connection, cell_context(connection, question))


def _panel(connection: Connection, name: str, prime: int, filters: Setting) -> Panel:
    context = cell_context(connection, Question(suite=name, prime=prime, filters=filters))
    c_model = cell_bits(connection, context)
    return Panel(
        delay_of(context),
        crossing_of(context, c_model),
        speeds_of(context, c_model),
        regimes_of(context),
    )


def _capacity(connection: Connection, name: str, filters: Setting) -> CapacityAnswer:
    """Capacity of the setting; axes that capacity runs do not know are left out."""
    kept = {axis: value for axis, value in filters.items() if axis not in DATA_AXES}
    return capacity(connection, Question(suite=name, filters=kept))


DATA_AXES = ("task", "operation", "train_fraction", "split")


SHORT_HASH = 12


def description(content: SuiteContent) -> str:
    """What the suite asks, in the words of its file now; a recording keeps those of its time."""
    if content.name.removesuffix(RELEASED) in shipped_suites():
        file = load_suite(content.name).file
        return " ".join(
            words if words.endswith((".", "?")) else f"{words}."
            for words in (file.description, file.notes)
            if words
        )
    return content.summary.description


def scope(content: SuiteContent) -> list[Block]:
    """The suite, its grid, and its runs by kind and state."""
    summary = content.summary
    found: list[Block] = []
    if words := description(content):
        found.append(Paragraph(words))
    found.append(Bullets(tuple(_facts(content))))
    found.append(_runs(content))
    if not summary.complete and not content.capacity_alone:
        found.append(_trained(content))
    if content.coverage.failures:
        reasons = "; ".join(f"{f.runs:,} × {f.reason}" for f in content.coverage.failures)
        found.append(Paragraph(f"Failed runs: {reasons}."))
    return found


def _facts(content: SuiteContent) -> list[str]:
    summary, training = content.summary, content.training
    primes = f"; primes {', '.join(map(str, summary.primes))}" if summary.primes else ""
    facts = [f"Suite {summary.name}, revision {summary.revision}{primes}."]
    if summary.axes:
        swept = "; ".join(
            f"{axis_name(axis)} {', '.join(map(str, values))}"
            for axis, values in summary.axes.items()
        )
        facts.append(f"Swept: {swept}.")
    positions = content.record.spec.get("positions")
    if positions:
        facts.append(f"Positions of the networks: {positions}.")
    if training.widths is not None:
        facts.append(f"Widths {training.widths[0]} to {training.widths[1]}.")
    answer = content.answer
    if answer is not None:
        seeds = sorted({(c.seeds.speed, c.seeds.grok) for c in answer.cells})
        speed, grok = (sorted({pair[i] for pair in seeds}) for i in (0, 1))
        facts.append(f"Seeds per cell: {span(speed)} speed, {span(grok)} grok.")
        cap = f", widths above {answer.max_width} left out" if answer.max_width else ""
        facts.append(f"Thresholds: {thresholds_text(answer.thresholds)}{cap}.")
    if summary.inherited:
        facts.append(f"{count(summary.inherited, 'run')} inherited from other suites.")
    facts.append(cost(training))
    if not summary.complete:
        facts += missing_sentence(content.coverage)
    return facts


def cost(training: TrainingAnswer) -> str:
    """Core-hours and epochs in a sentence."""
    if training.core_hours is None or not training.epochs:
        return "Cost: no run trained yet."
    hours = f"{training.core_hours:.3g} core-hours"
    return f"Cost: {hours} of training, {whole(training.epochs)} epochs."


def _runs(content: SuiteContent) -> Table:
    rows = []
    for kind, states in content.coverage.kinds.items():
        if content.capacity_alone and kind != "capacity":
            continue
        cells = [c for c in content.coverage.cells if c.kind == kind]
        rows.append(
            (
                kind,
                whole(states.done),
                whole(sum(c.censored for c in cells)),
                whole(states.failed),
                whole(sum(c.diverged for c in cells)),
                whole(states.pending + states.running + states.stale),
            )
        )
    return Table(
        name=f"{content.name}-runs",
        caption=f"{content.name}: the suite's own runs. Censored runs are done runs that the cap "
        "on epochs stopped before their threshold.",
        header=("kind", "done", "censored", "failed", "of these diverged", "missing"),
        rows=tuple(rows),
        numeric=frozenset(range(1, 6)),
    )


def missing_sentence(coverage: CoverageAnswer) -> Iterator[str]:
    """What of the suite is not trained: whole widths, or seeds at widths in use."""
    apart = {True: 0, False: 0}
    for cell in coverage.cells:
        apart[_tried(cell)] += cell.states.pending + cell.states.running + cell.states.stale
    if apart[False]:
        yield f"{count(apart[False], 'run')} of the suite at widths left out so far."
    if apart[True]:
        yield f"{count(apart[True], 'run')} missing at widths in use: numbers may still change."


def _tried(cell: CellCoverage) -> bool:
    return cell.states.done + cell.states.failed > 0


def _trained(content: SuiteContent) -> Table:
    """The widths in use, by prime and setting, with their seeds."""
    cells = [c for c in content.coverage.cells if _tried(c) and c.kind != "capacity"]
    places = dict.fromkeys((c.prime, setting_text(c.setting, "all")) for c in cells)
    rows = []
    for prime, setting in sorted(places):
        row = [str(prime), setting]
        for kind in ("speed", "grok"):
            row.append(
                _widths(
                    c
                    for c in cells
                    if (c.kind, c.prime, setting_text(c.setting, "all")) == (kind, prime, setting)
                )
            )
        rows.append(tuple(row))
    return Table(
        name=f"{content.name}-widths",
        caption=f"{content.name}: widths trained, with the number of seeds in brackets.",
        header=("p", "setting", "speed", "grok"),
        rows=tuple(rows),
        numeric=frozenset({0}),
    )


def _widths(cells: Iterator[CellCoverage]) -> str:
    """`40 48 56 (5), 64 (3)`."""
    ordered = sorted(cells, key=lambda c: c.width)
    runs = groupby(ordered, key=lambda c: c.states.done + c.states.failed)
    return ", ".join(f"{' '.join(str(c.width) for c in group)} ({n})" for n, group in runs)


def _recorded(made: Mapping[str, Any]) -> str:
    """A suite that came from a dump: when it was written, by what, and what was thinned."""
    commit = made.get("git_commit")
    versions = ", ".join(f"{name} {v}" for name, v in sorted((made.get("versions") or {}).items()))
    words = f"Loaded from a recording of {made.get('dumped_at', 'unknown date')}"
    words += f", commit {str(commit)[:SHORT_HASH]}" if commit else ""
    words += f": {versions}" if versions else ""
    if made.get("thinning"):
        words += f"; curves keep {str(made['thinning']).rstrip('.')}"
    return f"{words}."


def provenance(content: SuiteContent, command: str) -> list[Block]:
    """Engines, fingerprints, code, versions, and how to make the report again."""
    training = content.training
    facts = [
        f"Suite hash {content.summary.hash[:SHORT_HASH]}, revision {content.summary.revision}"
        + (", frozen." if content.summary.frozen else "."),
    ]
    if training.first_closed is not None and training.last_closed is not None:
        first, last = (
            f"{at:%Y-%m-%d %H:%M} UTC" for at in (training.first_closed, training.last_closed)
        )
        facts.append(
            f"Runs closed between {first} and {last} on {count(training.hosts, 'machine')}."
        )
    for used in training.engines:
        facts.append(
            f"{count(used.runs, 'run')} by {used.engine} on {used.device}: {used.fingerprint}."
        )
    for code in training.code:
        versions = ", ".join(f"{name} {value}" for name, value in sorted(code.versions.items()))
        commit = (
            "code outside a checkout"
            if code.commit is None
            else f"commit {code.commit[:SHORT_HASH]}"
        )
        changed = " with uncommitted changes" if code.dirty else ""
        facts.append(f"{count(code.runs, 'run')} with {commit}{changed}: {versions}.")
    if training.recorded is not None:
        facts.append(_recorded(training.recorded))
    answer = content.answer
    if answer is not None:
        facts.append(f"Analysis version {ANALYSIS_VERSION}.")
    found: list[Block] = [
        Bullets(tuple(facts)),
        Paragraph(
            "To write this report again from the same runs; those of a recording come back by "
            "groktime db load:"
        ),
        Command((command,)),
    ]
    if not content.summary.complete:
        found += [
            Paragraph("To train what is missing of the suite:"),
            Command((f"groktime sweep {content.name}",)),
        ]
    return found


Sampled = tuple[str, int, str, int, int]  # kind, prime, setting, width, seeds


def sampling(content: SuiteContent) -> str:
    """Seeds, widths and caps on both sides: what a comparison of settings does not tell."""
    reference = content.reference
    if reference is None or reference.suite not in shipped_suites():
        return ""
    theirs: dict[tuple[str, int, str, int], set[int]] = defaultdict(set)
    caps = set()
    for spec in load_suite(reference.suite).runs():
        if spec.kind != "capacity":
            run = spec.columns()
            setting = str([run.get(axis) for axis in content.summary.axes])
            theirs[spec.kind, run["prime"], setting, run["width"]].add(spec.seed)
            caps.add(spec.stop.max_epochs)
    ours = [
        (c.kind, c.prime, str(c.setting), c.width, c.states.done + c.states.failed)
        for c in content.coverage.cells
        if c.kind != "capacity" and c.states.done + c.states.failed
    ]
    cap = content.record.spec.get("stop", {}).get("max_epochs")
    stopped = "" if cap is None else f", runs stopped at {whole(cap)} epochs"
    whose = "Ours, inherited runs aside," if content.summary.inherited else "Ours"
    return (
        f"{whose} were measured with {_density(ours)}{stopped}; the published sweep with "
        f"{_density([(*place, len(seeds)) for place, seeds in theirs.items()])}, runs stopped at "
        f"{span(sorted(caps))} epochs."
    )


def _density(sampled: Iterable[Sampled]) -> str:
    seeds: set[int] = set()
    widths: dict[str, dict[tuple[int, str], set[int]]] = {
        "speed": defaultdict(set),
        "grok": defaultdict(set),
    }
    for kind, prime, setting, width, number in sampled:
        seeds.add(number)
        widths[kind][prime, setting].add(width)
    counts = {
        kind: span(sorted({len(found) for found in cells.values()} or {0}))
        for kind, cells in widths.items()
    }
    return (
        f"{span(sorted(seeds or {0}))} seeds at {counts['speed']} speed and {counts['grok']} grok "
        "widths a prime"
    )
