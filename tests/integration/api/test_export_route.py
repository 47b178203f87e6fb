"""Whole tables of a suite as files."""

from __future__ import annotations

import io

import httpx
import pandas as pd
import pytest
from fixtures.commands import wait_until
from fixtures.database import Database
from fixtures.http import asking
from sqlalchemy import text

from groktime.api.middleware import Limits


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_the_runs_of_a_suite_are_all_there(api: httpx.Client, form: str) -> None:
    response = api.get(f"/export/decay.{form}")
    assert response.headers["content-disposition"] == f'attachment; filename="decay-runs.{form}"'
    read = pd.read_csv if form == "csv" else pd.read_parquet
    frame = read(io.BytesIO(response.content))
    assert len(frame) == 144
    assert set(frame["weight_decay"]) == {0.1, 1.0}


def test_the_curves_have_every_epoch(api: httpx.Client, shared_seeded: Database) -> None:
    frame = pd.read_parquet(io.BytesIO(api.get("/export/decay.parquet?table=curves").content))
    query = text(
        "SELECT count(*) FROM curve c JOIN suite_runs sr ON sr.run_id = c.run_id "
        "JOIN suites s ON s.id = sr.suite_id WHERE s.name = 'decay'"
    )
    with shared_seeded.engine.connect() as connection:
        assert len(frame) == connection.scalar(query)


def test_who_stops_reading_leaves_nothing_behind(
    api: httpx.Client, shared_seeded: Database
) -> None:
    with api.stream("GET", "/export/tiny.csv?table=curves") as response:
        next(response.iter_bytes())
    assert api.get("/health").status_code == 200


def test_more_downloads_than_the_limit_are_turned_away(seeded: Database) -> None:
    with asking(seeded.url, Limits(exports=0)) as api:
        refused = api.get("/export/tiny.csv")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert api.get("/suites").status_code == 200


def test_one_client_cannot_take_every_download(seeded: Database) -> None:
    with asking(seeded.url, Limits(exports_per_client=0)) as api:
        refused = api.get("/export/tiny.csv")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")


def test_a_download_given_up_makes_place_for_the_next(seeded: Database) -> None:
    with asking(seeded.url, Limits(exports=1)) as api:
        for _ in range(3):
            with api.stream("GET", "/export/decay.csv?table=curves") as response:
                next(response.iter_bytes())
            wait_until(lambda: api.get("/export/tiny.csv").status_code == 200)


def test_other_forms_are_refused(api: httpx.Client) -> None:
    assert api.get("/export/tiny.xlsx").status_code == 422
