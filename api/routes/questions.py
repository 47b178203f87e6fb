"""The questions: /crossing, /onset, /delay, /regimes, /speeds, /capacity, /law and /tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy import Connection

from api import tables
from api.answering import answered
from api.examples import TWINS
from api.queries import AnswerQuery, LawQuery, TestsQuery, fraction_window
from api.tokens import MayRead
from service.answers.capacity import CapacityAnswer, capacity
from service.answers.cell_tests import TestsAnswer, cell_tests
from service.answers.crossing import CrossingAnswer, crossing
from service.answers.delay import DelayAnswer, delay
from service.answers.law import LawAnswer, law
from service.answers.onset import OnsetAnswer, onset
from service.answers.question import Question
from service.answers.reading import find_suite
from service.answers.regimes import RegimesAnswer, regimes
from service.answers.speeds import SpeedsAnswer, speeds

router = APIRouter(tags=["questions"], dependencies=[MayRead])

Asked = Annotated[AnswerQuery, Query()]


async def _answer(
    request: Request,
    query: AnswerQuery,
    name: str,
    compute: Callable[[Connection, Question], Any],
    rows: Callable[[Any], list[tables.Row]],
) -> Response:
    question = query.question(request.app.state.settings)
    return await answered(
        request,
        query,
        lambda c: find_suite(c, question.suite, question.prime, question.default_suite),
        lambda c: compute(c, question),
        rows,
        name,
    )


@router.get(
    "/crossing",
    response_model=CrossingAnswer,
    responses=TWINS,
    summary="Where do memorisation and generalisation cross, and does grokking start there?",
)
async def get_crossing(request: Request, query: Asked) -> Response:
    """P_cross of one cell with its interval, beside P_onset and P_mem.

    Several settings of the prime match: 422 with the axis values to choose from.
    """
    return await _answer(request, query, "crossing", crossing, tables.crossing_rows)


@router.get(
    "/onset",
    response_model=OnsetAnswer,
    responses=TWINS,
    summary="From which size on is generalisation delayed?",
)
async def get_onset(request: Request, query: Asked) -> Response:
    """P_onset with the delays it was read from."""
    return await _answer(request, query, "onset", onset, tables.onset_rows)


@router.get(
    "/delay",
    response_model=DelayAnswer,
    responses=TWINS,
    summary="How long after fitting does each run generalise?",
)
async def get_delay(request: Request, query: Asked) -> Response:
    """Every run's delay and the least over seeds at each width."""
    return await _answer(request, query, "delay", delay, tables.delay_rows)


@router.get(
    "/regimes",
    response_model=RegimesAnswer,
    responses=TWINS,
    summary="What happens at each size?",
)
async def get_regimes(request: Request, query: Asked) -> Response:
    """Under capacity, memorised only, immediate or grokking, by majority of seeds."""
    return await _answer(request, query, "regimes", regimes, tables.regimes_rows)


@router.get(
    "/speeds",
    response_model=SpeedsAnswer,
    responses=TWINS,
    summary="How fast do models of each size memorise and generalise?",
)
async def get_speeds(request: Request, query: Asked) -> Response:
    """T_mem and T_gen per seed and centred, with what was censored."""
    return await _answer(request, query, "speeds", speeds, tables.speeds_rows)


@router.get(
    "/capacity",
    response_model=CapacityAnswer,
    responses=TWINS,
    summary="How many bits does a parameter hold?",
)
async def get_capacity(request: Request, query: Asked) -> Response:
    """Capacity curves, the fit of C_model, and P_mem of every prime of the suite."""
    return await _answer(request, query, "capacity", capacity, tables.capacity_rows)


@router.get(
    "/law",
    response_model=LawAnswer,
    responses=TWINS,
    summary="Does memorisation follow one law of the capacity fraction?",
)
async def get_law(request: Request, query: Annotated[LawQuery, Query()]) -> Response:
    """T_mem against f over primes: the exponential law, its rivals and the collapse test."""
    window = fraction_window(query)
    return await _answer(request, query, "law", lambda c, q: law(c, q, window), tables.law_rows)


@router.get(
    "/tests",
    response_model=TestsAnswer,
    responses=TWINS,
    summary="Over all cells of a suite: does the crossing predict the onset?",
)
async def get_tests(request: Request, query: Annotated[TestsQuery, Query()]) -> Response:
    """Every cell's prediction and onset, pooled tests, and the within-setting table."""
    return await _answer(
        request,
        query,
        "tests",
        cell_tests,
        lambda answer: tables.rows_of_tests(answer, query.table),
    )
