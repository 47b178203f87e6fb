"""Every number the paper printed, to be set beside ours with n on both sides."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal


@dataclass(frozen=True)
class PublishedTest:
    """One row of a pooled table; the texts are as printed."""

    suite: str
    table: str
    cells: int
    test: str
    statistic: float | None
    statistic_text: str | None
    statistic_kind: str | None
    p: float | None
    p_text: str | None
    p_relation: str | None
    ci: tuple[float, float] | None
    axis: str | None


@dataclass(frozen=True)
class PublishedSetting:
    """One row of a within-setting table."""

    suite: str
    table: str
    axis: str
    setting: float | int | str
    n_primes: int
    n_primes_total: int | None
    median_residual: float | None
    std: float | None
    verdict: str | None


@cache
def _published() -> dict[str, Any]:
    text = resources.files("service.analysis").joinpath("golden/published.json").read_text()
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def _tables(suite: str, kind: Literal["pooled", "within"]) -> list[dict[str, Any]]:
    return [t for t in _published()["tables"] if t["suite"] == suite and t["kind"] == kind]


def published_tests(suite: str) -> dict[str, PublishedTest]:
    """The pooled table of a suite by test name; empty when the paper printed none."""
    rows = {}
    for table in _tables(suite, "pooled"):
        for row in table["rows"]:
            rows[row["test"]] = PublishedTest(
                suite=suite,
                table=table["label"],
                cells=table["cells"],
                test=row["test"],
                statistic=row["statistic"],
                statistic_text=row.get("statistic_text"),
                statistic_kind=row.get("statistic_kind"),
                p=row.get("p"),
                p_text=row.get("p_text"),
                p_relation=row.get("p_relation"),
                ci=tuple(row["ci"]) if row.get("ci") else None,
                axis=row.get("axis"),
            )
    return rows


def published_settings(suite: str) -> tuple[PublishedSetting, ...]:
    """The within-setting table of a suite; empty when the paper printed none."""
    return tuple(
        PublishedSetting(
            suite=suite,
            table=table["label"],
            axis=table["axis"],
            setting=row["setting"],
            n_primes=row["n_primes"],
            n_primes_total=row.get("n_primes_total"),
            median_residual=row.get("median_residual"),
            std=row.get("std"),
            verdict=row.get("verdict"),
        )
        for table in _tables(suite, "within")
        for row in table["rows"]
    )


def published_scalar(name: str) -> Any:
    """A number from the running text by its name, such as `c_model`; None if not printed."""
    for scalar in _published()["scalars"]:
        if scalar["name"] == name:
            return scalar["value"]
    return None
