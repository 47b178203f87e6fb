"""Everything a report says about a suite: its answers in both methods and on both clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

from sqlalchemy import Connection

from groktime.db.queries.suites import SuiteRecord
from groktime.service.analysis.capacity import BitsPerParameter
from groktime.service.answers.capacity import CapacityAnswer, capacity, cell_bits
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
)
from groktime.service.answers.records import read_capacity, read_runs, read_suite
from groktime.service.answers.reference import Reference, find_reference
from groktime.service.answers.suites import (
    CoverageAnswer,
    SuiteSummary,
    TrainingAnswer,
    coverage,
    suite_summary,
    training,
)
from groktime.service.spec import SETTING_COLUMNS

Convention = tuple[Literal["robust", "paper"], Literal["online", "eval"]]
CONVENTIONS: tuple[Convention, ...] = (
    ("robust", "online"),
    ("robust", "eval"),
    ("paper", "online"),
    ("paper", "eval"),
)
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

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def answer(self) -> CellTests | None:
        """The tests by the suite's own convention, None where it has none."""
        found = self.tests[self.main]
        return None if isinstance(found, str) else found

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
    )


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
    """Settings of a suite that measures capacity alone, the baseline first."""
    first = said(partial(capacity, connection, Question(suite=name)))
    if isinstance(first, str):
        return
    others = () if first.chosen is None else first.chosen.other_settings
    for setting in sorted((first.setting, *others), key=str):
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
