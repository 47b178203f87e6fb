"""`groktime forecast`: predict primes before they are trained, and score that afterwards."""

from __future__ import annotations

import json
import math
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
    from groktime.service.analysis.forecast import Predicted, PrimeForecast
    from groktime.service.answers.forecast import ForecastAnswer, ScoreAnswer
    from groktime.service.answers.question import SettingValue


class SuiteFirst(TyperGroup):
    """`forecast SUITE …` means `forecast make SUITE …`; a command's own name comes first."""

    # Any: the types of click move with typer's version.
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            args = ["make", *args]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=SuiteFirst,
    no_args_is_help=True,
    help="Predict crossings and onsets of primes before their runs exist, and score it later.\n\n"
    "`groktime forecast SUITE --fit … --predict …` makes one.",
    epilog="Example: groktime forecast central --fit 97,107,113 --predict 127,139",
)

QUANTITIES = ("p_cross", "p_onset")

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
    typer.echo(
        f"forecast {number} is written down; score it with: groktime forecast score {number}"
    )


@app.command()
def state(
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="The suite that is forecast.")],
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="YAML: a list of quantity, prime, low, high and why."),
    ],
    level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    as_json: Json = False,
) -> None:
    """Write down what you expect of a suite before it is trained, as intervals with reasons.

    Example: groktime forecast state mine expected.yaml

    - {quantity: p_cross, prime: 113, low: 150000, high: 210000, why: as with remainders}
    """
    from groktime.db.engine import connect
    from groktime.service.answers.forecast import state_forecast
    from groktime.service.answers.question import Question

    predictions, why = read_statements(file, level)
    engine = connect()
    with engine.begin() as connection:
        number = state_forecast(
            connection, suite, Question(suite=suite, level=level), predictions, why
        )
    engine.dispose()
    if as_json:
        typer.echo(json.dumps({"id": number, "suite": suite}))
        return
    typer.echo(
        f"forecast {number} is written down; score it with: groktime forecast score {number}"
    )


def read_statements(file: Path, level: float) -> tuple[list[PrimeForecast], dict[str, str]]:
    """The statements of a file, one forecast a prime, and the reasons."""
    from groktime.service.analysis.forecast import Predicted, PrimeForecast
    from groktime.service.suites.document import parse

    try:
        document = parse(file.read_text("utf-8"), str(file))
    except OSError as problem:
        raise InputError(f"{file}: {problem.strerror}") from None
    content = document.content
    if not isinstance(content, list) or not content:
        raise InputError(f"{file}: accepted: a list of quantity, prime, low, high and why")
    found: dict[int, dict[str, Predicted]] = {}
    why: dict[str, str] = {}
    for index, entry in enumerate(content):
        fields = {"quantity", "prime", "low", "high", "why"}
        if not isinstance(entry, dict) or set(entry) != fields:
            raise document.error((index,), f"accepted: {', '.join(sorted(fields))}, all of them")
        quantity, prime, low, high = (entry[n] for n in ("quantity", "prime", "low", "high"))
        if quantity not in QUANTITIES:
            raise document.error(
                (index, "quantity"),
                f"{quantity!r} is not accepted; accepted: {', '.join(QUANTITIES)}",
            )
        numbers = [v for v in (low, high) if isinstance(v, int | float) and v > 0]
        if len(numbers) < 2 or low > high or not isinstance(prime, int):
            raise document.error(
                (index,), "accepted: a whole prime and 0 < low ≤ high, in parameters"
            )
        if quantity in found.setdefault(prime, {}):
            raise document.error((index,), f"{quantity} of {prime} is given twice")
        found[prime][quantity] = Predicted(math.sqrt(low * high), float(low), float(high), level)
        why[f"{quantity} {prime}"] = str(entry["why"])
    return [
        PrimeForecast(prime, None, points.get("p_cross"), points.get("p_onset"), None, None)
        for prime, points in sorted(found.items())
    ], why


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
    return "none" if value is None else f"{value:,.0f}"


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
        console.print(f"{known}: already trained, so this checks the laws and forecasts nothing")


def _tell_score(answer: ScoreAnswer, console: Console) -> None:
    table = Table("prime", "quantity", "predicted", "measured", "error, dex", "inside", "by log p")
    for row in answer.score.scores:
        table.add_row(
            str(row.prime),
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
