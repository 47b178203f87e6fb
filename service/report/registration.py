"""What a report says of what was fixed and predicted before a suite was trained."""

from __future__ import annotations

from collections.abc import Iterator

from groktime.service.analysis.forecast import Score
from groktime.service.answers.registration import Registration, ScoredForecast
from groktime.service.report.content import SuiteContent
from groktime.service.report.document import Block, Paragraph, Table
from groktime.service.words import count, plain, setting_text, signed, whole


def frozen_sentence(found: Registration) -> str:
    """Whether runs and analysis were fixed before the first run."""
    if found.frozen == "never" or found.frozen_at is None:
        return (
            "Never frozen: nothing fixed the suite before its first run, and its widths and seeds "
            "may have been chosen while it trained."
        )
    by = " (by the word of the recording)" if found.claimed else ""
    at = f"{found.frozen_at:%Y-%m-%d %H:%M} UTC{by}"
    if found.frozen == "untrained" or found.first_run is None:
        return f"Frozen at {at}, before any run."
    if found.frozen == "before":
        return f"Frozen before the first run: at {at}; it began {found.first_run:%Y-%m-%d %H:%M}."
    return (
        f"Frozen after the first run: at {at}; it began {found.first_run:%Y-%m-%d %H:%M}. Widths "
        "and seeds may have been chosen with results in sight."
    )


def registration_blocks(content: SuiteContent) -> list[Block]:
    """When the suite was frozen, and every forecast of it with its score."""
    found = content.registration
    said = frozen_sentence(found)
    if not found.forecasts:
        said += " No forecast of it was written down."
    blocks: list[Block] = [Paragraph(said)]
    for forecast in found.forecasts:
        blocks += _forecast(content.name, forecast)
    return blocks


def _forecast(name: str, forecast: ScoredForecast) -> Iterator[Block]:
    when = "before" if forecast.before_first_run else "after"
    by = " (by the word of the recording)" if forecast.claimed else ""
    made = "Stated"
    if forecast.fitted_suite is not None:
        made = f"Fitted on {forecast.fitted_suite}"
    score = forecast.score
    told = f"{made} {when} the first run, at {forecast.created_at:%Y-%m-%d %H:%M} UTC{by}: "
    if not score.scores:
        yield Paragraph(f"{told}{count(score.unscored, 'prediction')}, none measured yet.")
        return
    inside = sum(row.inside for row in score.scores)
    told += f"{inside} of {count(len(score.scores), 'prediction')} held"
    told += f", {score.unscored} not measured yet." if score.unscored else "."
    yield Paragraph(told)
    yield Table(
        name=f"{name}-forecast-{forecast.id}",
        caption=f"{name}: what was predicted and what was measured. Errors in dex, those of "
        "residuals and of rho in their own units.",
        header=("of", "quantity", "predicted", "measured", "error", "inside"),
        rows=tuple(_row(row) for row in score.scores),
        numeric=frozenset({2, 3, 4}),
    )


def _row(row: Score) -> tuple[str, ...]:
    named = {**row.setting, **row.convention}
    prime = [f"p = {row.prime}"] if row.prime is not None else []
    of = ", ".join([*prime, *([setting_text(named, "")] if named else [])]) or "all cells"
    return (
        of,
        row.quantity,
        _value(row.predicted),
        _value(row.observed),
        signed(row.error),
        "yes" if row.inside else "no",
    )


def _value(value: float) -> str:
    return whole(round(value)) if value >= 1000 else plain(value)
