"""The questions, each about what the suite that can answer best has trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field
from sqlalchemy import Connection

from groktime.api import tables
from groktime.api.database import Database
from groktime.api.middleware import MayRead
from groktime.api.queries import TWINS, AnswerQuery, LawQuery, TestsQuery, fraction_window
from groktime.api.responses import answered, as_json, chosen
from groktime.service.answers.capacity import CapacityAnswer, capacity
from groktime.service.answers.cell_tests import TestsAnswer, cell_tests, flat_answer
from groktime.service.answers.choice import About
from groktime.service.answers.context import StartAnswer, StartOf, start
from groktime.service.answers.crossing import (
    CrossingAnswer,
    DelayAnswer,
    OnsetAnswer,
    RegimesAnswer,
    SpeedsAnswer,
    crossing,
    delay,
    onset,
    regimes,
    speeds,
)
from groktime.service.answers.laws import DelayLawAnswer, LawAnswer, delay_law, law
from groktime.service.answers.question import Question, read_suite

router = APIRouter(tags=["questions"], dependencies=[MayRead])

Asked = Annotated[AnswerQuery, Query()]

# What a question needs that is not about one cell.
NEEDS: dict[str, About] = {
    "capacity": "capacity",
    "law": "suite",
    "delay_law": "suite",
    "tests": "suite",
}


async def _answer(
    request: Request,
    query: AnswerQuery,
    name: str,
    compute: Callable[[Connection, Question], Any],
    rows: Callable[[Any], list[tables.Row]],
) -> Response:
    put = query.question(request.app.state.settings)
    question = await chosen(request, put, NEEDS.get(name, "cell"))
    return await answered(
        request,
        query,
        lambda c: read_suite(c, str(question.suite)),
        lambda c: compute(c, question),
        rows,
        name,
        choice=repr(question.choice),
    )


class StartQuery(AnswerQuery):
    """A question may name some of it already."""

    of: StartOf = Field("cell", description="a cell, a law over all primes, a suite or capacity")


@router.get("/start", response_model=StartAnswer, summary="Where is the best place to begin?")
async def get_start(request: Request, query: Annotated[StartQuery, Query()]) -> Response:
    """The suite, prime and setting that answer a question which names no more than this."""
    database: Database = request.app.state.database
    question = query.question(request.app.state.settings)

    def read() -> StartAnswer:
        with database.reading() as connection:
            return start(connection, question, query.of)

    return Response(as_json(await anyio.to_thread.run_sync(read)), media_type="application/json")


@router.get(
    "/crossing",
    response_model=CrossingAnswer,
    responses=TWINS,
    summary="Where do memorisation and generalisation cross, and does grokking start there?",
)
async def get_crossing(request: Request, query: Asked) -> Response:
    """P_cross of one cell with its interval, beside P_onset and P_mem.

    Without a suite the one that can answer best is taken, without a prime one with both points,
    and of several settings the baseline; `chosen` says why. 422 with the values to choose from
    where there is no baseline.
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
    "/delay_law",
    response_model=DelayLawAnswer,
    responses=TWINS,
    summary="Does the weight norm or the crossing predict how long the delay is?",
)
async def get_delay_law(request: Request, query: Asked) -> Response:
    """Errors on primes left out: the norm law, the crossing, the size and a constant."""
    return await _answer(request, query, "delay_law", delay_law, tables.delay_law_rows)


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
        lambda c, question: flat_answer(cell_tests(c, question)),
        lambda answer: tables.rows_of_tests(answer, query.table),
    )
