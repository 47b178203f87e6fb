"""`groktime forecast`: predict primes before they are trained, and score that afterwards."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from groktime.service.errors import InputError
from groktime.service.settings import get_settings

if TYPE_CHECKING:
    from groktime.service.analysis.forecast import Predicted, Score, Statement
    from groktime.service.answers.forecast import ForecastAnswer, ScoreAnswer
    from groktime.service.answers.question import SettingValue


class SuiteFirst(TyperGroup):
    """`forecast …` means `forecast make …` unless a command's own name comes first."""

    # Any: the types of click move with typer's version.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = ["make", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=SuiteFirst,
    no_args_is_help=True,
    help="Predict crossings and onsets of primes before their runs exist, and score it later.\n\n"
    "`groktime forecast SUITE --fit … --predict …` makes one.",
    epilog="Example: groktime forecast central --fit 97,107,113 --predict 127,139",
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON line for machines.")]


@app.command()
def make(
    suite: Annotated[
        str | None,
        typer.Argument(metavar="SUITE", help="Default: the fullest one."),
    ] = None,
    *,
    fit: Annotated[str, typer.Option(help="Primes that the laws are fitted on: 97,107,113.")],
    predict: Annotated[str, typer.Option(help="Primes to predict: 127,139.")],
    fitted_on: Annotated[
        str | None,
        typer.Option("--from", help="Suite that the laws are fitted on; default: SUITE itself."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(metavar="AXIS=VALUE", help="Value of a swept axis; give it once an axis."),
    ] = None,
    method: Annotated[Literal["robust", "paper"] | None, typer.Option()] = None,
    clock: Annotated[Literal["online", "eval"] | None, typer.Option()] = None,
    level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    as_json: Json = False,
) -> None:
    """Fit the speed laws on some primes, predict others, and write that down with a number.

    With --from the suite needs no run yet: freeze it, write down what another one says of it,
    then train. Examples:

    groktime forecast central --fit 97,107,113 --predict 127,139

    groktime forecast mine --from mini-released --fit 47,53,61 --predict 59
    """
    from groktime.db.engine import connect
    from groktime.service.answers.forecast import forecast, forecast_for, store_forecast
    from groktime.service.answers.question import Question

    if fitted_on is not None and suite is None:
        raise InputError("--from needs SUITE, the suite that is forecast")

    fitted, predicted = primes("--fit", fit), primes("--predict", predict)
    question = Question(
        suite=fitted_on or suite,
        default_suite=get_settings().default_suite,
        filters=filters(setting or ()),
        method=method,
        clock=clock,
        level=level,
    )
    engine = connect()
    with engine.begin() as connection:
        if fitted_on is not None and suite is not None:
            answer = forecast_for(connection, suite, question, fitted, predicted)
        else:
            answer = forecast(connection, question, fitted, predicted)
        number = store_forecast(connection, answer)
    engine.dispose()
    if as_json:
        predictions = [asdict(p) for p in answer.forecast.predictions]
        typer.echo(json.dumps({"id": number, "suite": answer.suite, "predictions": predictions}))
        return
    _tell_forecast(answer, Console(highlight=False))
    typer.echo(f"stored as forecast {number}; score it with: groktime forecast score {number}")


@app.command()
def state(
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="The suite that is forecast.")],
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="YAML: a list of quantity, low, high and why."),
    ],
    level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    as_json: Json = False,
) -> None:
    """Write down what you expect of a suite before it is trained, as intervals with reasons.

    Example: groktime forecast state mine expected.yaml

    - {quantity: p_cross, prime: 113, low: 150000, high: 210000, why: as with remainders}

    - {quantity: c_model, setting: {weight_decay: 1}, low: 1, high: 1.3, why: as before}

    - {quantity: rho, convention: {clock: eval}, low: 0.8, high: 1, why: the order stays}
    """
    from groktime.db.engine import connect
    from groktime.service.answers.forecast import state_forecast

    statements = read_statements(file, level)
    engine = connect()
    with engine.begin() as connection:
        number = state_forecast(connection, suite, statements)
    engine.dispose()
    if as_json:
        typer.echo(json.dumps({"id": number, "suite": suite}))
        return
    typer.echo(f"stored as forecast {number}; score it with: groktime forecast score {number}")


REQUIRED = ("quantity", "low", "high", "why")
OPTIONAL = ("prime", "setting", "convention")
CONVENTIONS = (
    *("method", "clock", "labels", "t_mem", "t_gen", "e_train", "e_val"),
    *("min_delay", "min_delay_share"),
)


def read_statements(file: Path, level: float) -> list[Statement]:
    """The statements of a file, each checked: what cannot be scored is refused."""
    from groktime.service.suites.document import parse

    try:
        document = parse(file.read_text("utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "not a UTF-8 text file"
        raise InputError(f"{file}: {reason}") from None
    if not isinstance(document.content, list) or not document.content:
        raise InputError(f"{file}: accepted: a list of {', '.join(REQUIRED)}")
    found: list[Statement] = []
    for index, entry in enumerate(document.content):

        def refused(field: str, why: str, at: int = index) -> Exception:
            return document.error((at, field) if field else (at,), why)

        statement = _statement(entry, level, refused)
        same = [s for s in found if _about(s) == _about(statement)]
        if same:
            raise document.error((index,), f"{statement.quantity} is stated twice")
        found.append(statement)
    return found


def _about(statement: Statement) -> tuple[str, int | None, str]:
    return (
        statement.quantity,
        statement.prime,
        json.dumps([statement.setting, statement.convention], sort_keys=True),
    )


def _statement(entry: object, level: float, refused: Callable[[str, str], Exception]) -> Statement:
    from groktime.service.analysis.forecast import (
        ON_LOG_SCALE,
        PRIME_QUANTITIES,
        SUITE_QUANTITIES,
        Statement,
    )
    from groktime.service.answers.question import Question, QuestionError
    from groktime.service.spec import SETTING_COLUMNS

    if (
        not isinstance(entry, dict)
        or not set(REQUIRED) <= set(entry)
        or not set(entry) <= {*REQUIRED, *OPTIONAL}
    ):
        raise refused(
            "", f"accepted: {', '.join(REQUIRED)}, all of them, and {', '.join(OPTIONAL)}"
        )
    quantity, low, high = entry["quantity"], entry["low"], entry["high"]
    if quantity not in (*PRIME_QUANTITIES, *SUITE_QUANTITIES):
        accepted = ", ".join((*PRIME_QUANTITIES, *SUITE_QUANTITIES))
        raise refused("quantity", f"{quantity!r} is not accepted; accepted: {accepted}")
    least = 0.0 if quantity in ON_LOG_SCALE else -math.inf
    if not (_is_number(low) and _is_number(high) and least < low <= high):
        above = "0 < " if quantity in ON_LOG_SCALE else ""
        raise refused("low", f"accepted: numbers {above}low ≤ high")
    prime = entry.get("prime")
    if quantity in PRIME_QUANTITIES and not (isinstance(prime, int) and prime > 1):
        raise refused("prime", f"{quantity} is of a prime: name it")
    if quantity in SUITE_QUANTITIES and prime is not None:
        raise refused("prime", f"{quantity} is of the suite, not of a prime")
    for field, names in (("setting", tuple(SETTING_COLUMNS)), ("convention", CONVENTIONS)):
        given = entry.get(field, {})
        if not isinstance(given, dict) or not set(given) <= set(names):
            raise refused(field, f"accepted: a mapping of {', '.join(names)}")
    try:
        Question(**entry.get("convention", {}))
    except (QuestionError, TypeError) as problem:
        raise refused("convention", str(problem)) from None
    return Statement(
        quantity=quantity,
        low=float(low),
        high=float(high),
        level=level,
        why=str(entry["why"]),
        prime=prime,
        setting=entry.get("setting", {}),
        convention=entry.get("convention", {}),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@app.command()
def score(
    number: Annotated[int, typer.Argument(metavar="ID", min=1, help="The forecast's number.")],
    as_json: Json = False,
) -> None:
    """Compare a forecast with what has been measured since.

    Example: groktime forecast score 1
    """
    from groktime.db.engine import connect
    from groktime.service.answers.forecast import score as score_stored

    engine = connect()
    with engine.begin() as connection:
        answer = score_stored(connection, number)
    engine.dispose()
    if as_json:
        typer.echo(json.dumps({"id": number, "suite": answer.suite, **asdict(answer.score)}))
        return
    _tell_score(answer, Console(highlight=False))


def primes(option: str, text: str) -> list[int]:
    """Numbers separated by commas."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"{option} = {text!r} is not accepted; primes such as 97,107,113"
        ) from None


def filters(pairs: list[str] | tuple[str, ...]) -> dict[str, SettingValue]:
    """`weight_decay=0.1` as a filter; numbers are read as numbers."""
    from groktime.service.spec import SETTING_COLUMNS

    found: dict[str, SettingValue] = {}
    for pair in pairs:
        axis, given, value = pair.partition("=")
        if not given or axis not in SETTING_COLUMNS:
            accepted = ", ".join(SETTING_COLUMNS)
            raise InputError(
                f"--setting = {pair!r} is not accepted; AXIS=VALUE with AXIS {accepted}"
            )
        found[axis] = _value(value)
    return found


def _value(text: str) -> SettingValue:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text, text)


def _predicted(found: Predicted | None) -> str:
    if found is None:
        return "none"
    return f"{found.estimate:,.0f} ({found.low:,.0f} to {found.high:,.0f})"


def _number(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _subject(row: Score) -> str:
    """`113`, `weight_decay 0.1`, `clock eval`: what the quantity is of."""
    named = {**row.setting, **row.convention}
    parts = [str(row.prime)] if row.prime is not None else []
    return ", ".join([*parts, *(f"{name} {value}" for name, value in named.items())]) or "suite"


def _tell_forecast(answer: ForecastAnswer, console: Console) -> None:
    made = answer.forecast
    level = f"{100 * made.level:g} %"
    table = Table("prime", f"P_cross ({level})", f"P_onset ({level})", "P_cross by log p alone")
    for row in made.predictions:
        table.add_row(
            str(row.prime),
            _predicted(row.p_cross),
            _predicted(row.p_onset),
            _number(row.baseline_cross),
        )
    console.print(table)
    fitted = ", ".join(map(str, made.fitted_primes))
    if answer.fitted_suite:
        fitted += f" of {answer.fitted_suite}"
    for why in (answer.chosen.suite, answer.chosen.setting):
        if why:
            console.print(f"{answer.suite}: {why}")
    console.print(
        f"fitted on {fitted} at revision {answer.revision}, "
        f"C = {answer.c_model.value:.3g} bits/parameter ({answer.c_model.source})"
    )
    if answer.known_before:
        known = ", ".join(map(str, answer.known_before))
        console.print(f"{known}: already trained, so this checks the laws and is no forecast")


def _tell_score(answer: ScoreAnswer, console: Console) -> None:
    table = Table("of", "quantity", "predicted", "measured", "error", "inside", "by log p")
    for row in answer.score.scores:
        table.add_row(
            _subject(row),
            row.quantity,
            _number(row.predicted),
            _number(row.observed),
            f"{row.error:+.3f}",
            "yes" if row.inside else "no",
            "–" if row.baseline_error is None else f"{row.baseline_error:+.3f}",
        )
    console.print(table)
    summary = answer.score
    rmse = "–" if summary.rmse is None else f"{summary.rmse:.3f} dex"
    baseline = "–" if summary.baseline_rmse is None else f"{summary.baseline_rmse:.3f} dex"
    covered = "–" if summary.coverage is None else f"{100 * summary.coverage:.0f} %"
    console.print(
        f"root mean square error {rmse} (by log p alone {baseline}), {covered} inside their "
        f"intervals, {summary.unscored} not measured yet"
    )
    if answer.known_before:
        known = ", ".join(map(str, answer.known_before))
        console.print(f"{known}: trained before the forecast was made")
