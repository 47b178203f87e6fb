"""Refused questions: what is wrong, and what would have been accepted."""

from __future__ import annotations

import httpx
import pytest
from fixtures.database import Database
from fixtures.http import asking

from groktime.api.middleware import Limits


def problem(response: httpx.Response, status: int) -> dict[str, object]:
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["cache-control"] == "no-store"
    document: dict[str, object] = response.json()
    assert document["status"] == status
    assert document["type"] == "about:blank"
    return document


def test_an_unknown_prime_is_not_found_and_names_the_primes(api: httpx.Client) -> None:
    told = problem(api.get("/crossing?prime=113"), 404)
    assert (told["parameter"], told["value"], told["accepted"]) == ("prime", 113, [23, 29, 31])


def test_an_unknown_suite_is_not_found_and_names_the_suites(api: httpx.Client) -> None:
    for path in ("/crossing?suite=absent", "/suites/absent", "/export/absent.csv"):
        assert problem(api.get(path), 404)["accepted"] == ["decay", "tiny"]


def test_several_settings_are_answered_by_the_baseline(api: httpx.Client) -> None:
    answer = api.get("/crossing?suite=decay&prime=23").json()
    assert answer["setting"] == {"weight_decay": 1.0}
    assert answer["chosen"]["other_settings"] == [{"weight_decay": 0.1}]


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("prime=x", "prime"),
        ("prime=29&method=best", "method"),
        ("prime=29&clock=wall", "clock"),
        ("prime=29&units=hours", "units"),
        ("prime=29&level=2", "level"),
        ("prime=29&t_mem=0", "t_mem"),
        ("prime=29&t_mem=0.995", "t_mem"),
        ("prime=29&max_width=4", "max_width"),
        ("prime=29&weigth_decay=1", "weigth_decay"),
        ("prime=29&weight_decay=7", "weight_decay"),
        ("prime=29&format=xml", "format"),
        ("prime=99999999999", "prime"),
    ],
)
def test_a_bad_value_names_the_parameter_and_what_is_accepted(
    api: httpx.Client, query: str, parameter: str
) -> None:
    told = problem(api.get(f"/crossing?{query}"), 422)
    assert told["parameter"] == parameter
    assert told["accepted"]


@pytest.mark.parametrize("path", ["/crossing?prime=29", "/tests?suite=tiny", "/law?suite=tiny"])
def test_a_width_below_all_others_is_refused_by_its_own_name(api: httpx.Client, path: str) -> None:
    told = problem(api.get(f"{path}&max_width=4"), 422)
    assert (told["parameter"], told["accepted"]) == ("max_width", "8 or more")


def test_what_is_not_trained_yet_is_a_conflict(api: httpx.Client) -> None:
    told = problem(api.get("/capacity?suite=decay"), 409)
    assert "no capacity runs" in str(told["detail"])


def test_a_window_needs_both_ends_in_order(api: httpx.Client) -> None:
    assert problem(api.get("/law?f_min=0.1"), 422)["parameter"] == "f_max"
    assert problem(api.get("/law?f_min=0.2&f_max=0.1"), 422)["parameter"] == "f_max"


def test_an_unknown_path_run_or_chart_is_not_found(api: httpx.Client) -> None:
    problem(api.get("/nothing"), 404)
    problem(api.get("/runs/999999"), 404)
    assert problem(api.get("/charts/pie"), 422)["parameter"] == "name"


@pytest.mark.parametrize(
    ("query", "parameter", "given"),
    [
        ("/crossing?prime=23&prime=29", "prime", ["23", "29"]),
        ("/crossing?prime=29&method=paper&method=robust", "method", ["paper", "robust"]),
        ("/runs?limit=1&kind=grok&kind=speed&limit=2", "limit", ["1", "2"]),
        ("/charts/delay?prime=29&format=json&format=html", "format", ["json", "html"]),
    ],
)
def test_a_parameter_with_one_value_is_given_once(
    api: httpx.Client, query: str, parameter: str, given: list[str]
) -> None:
    told = problem(api.get(query), 422)
    assert (told["parameter"], told["value"], told["accepted"]) == (parameter, given, "one value")


def test_a_list_is_given_by_repeating_its_name(api: httpx.Client) -> None:
    page = api.get("/runs?suite=tiny&kind=grok&kind=speed&limit=1").json()
    assert page["total"] == 180
    assert api.get("/runs/1/curve?epochs=1&epochs=2").json()["epoch"] == [1, 2]
    assert api.get("/charts/curves?run=1&run=2").status_code == 200


def test_unknown_names_are_told_the_known_ones(api: httpx.Client) -> None:
    told = problem(api.get("/crossing?prime=29&foo=1"), 422)
    names = told["accepted"]
    assert isinstance(names, list)
    assert {"prime", "suite", "weight_decay", "format", "max_width"} <= set(names)
    assert names == sorted(names)
    document = api.get("/openapi.json").json()["paths"]["/crossing"]["get"]["parameters"]
    assert set(names) == {p["name"] for p in document if p["in"] == "query"}
    assert problem(api.get("/runs/1?foo=1"), 422)["accepted"] == []


@pytest.mark.parametrize("query", ["cursor=none", "sort=width&cursor={}"])
def test_a_bad_cursor_is_named(api: httpx.Client, query: str) -> None:
    given = api.get("/runs?limit=1").json()["next"]
    told = problem(api.get(f"/runs?{query.format(given)}"), 422)
    assert told["parameter"] == "cursor"
    assert "next" in str(told["accepted"])


def test_every_response_carries_a_request_id(api: httpx.Client) -> None:
    assert len(api.get("/health").headers["x-request-id"]) == 32
    mine = api.get("/nothing", headers={"X-Request-ID": "mine-1"})
    assert mine.headers["x-request-id"] == mine.json()["request_id"] == "mine-1"


def test_a_database_that_is_away_is_a_503_with_a_hint() -> None:
    with asking("postgresql://nobody@127.0.0.1:9/absent") as api:
        for path in ("/health", "/crossing?prime=29", "/suites", "/runs/1", "/events"):
            response = api.get(path)
            problem(response, 503)
            assert response.headers["retry-after"]
        assert "groktime_database_up 0.0" in api.get("/metrics").text


@pytest.mark.parametrize(
    "url",
    ["postgresql://secret_user@127.0.0.1:9/secret_name", "postgresql:///x?host=/secret_folder"],
)
def test_a_database_that_is_away_is_not_described_to_strangers(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with asking(url) as api:
        for path in ("/health", "/suites", "/crossing", "/events"):
            response = api.get(path)
            assert response.status_code == 503
            assert "secret" not in response.text
            assert "127.0.0.1" not in response.text
    assert "secret_" in caplog.text  # the log has the reason


def test_a_configuration_that_is_wrong_is_not_described_to_strangers() -> None:
    with asking("mysql://secret_user@127.0.0.1/secret_name") as api:
        response = api.get("/health")
        assert response.status_code == 503
        assert "mysql" not in response.text


def test_dropped_connections_are_made_again(seeded: Database) -> None:
    from sqlalchemy import text

    with asking(seeded.url) as api:
        assert api.get("/health").status_code == 200
        with seeded.engine.connect() as connection:
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
        assert api.get("/health").status_code == 200
        assert api.get("/crossing?prime=29").status_code == 200


def test_a_large_body_is_refused(seeded: Database) -> None:
    with asking(seeded.url, Limits(body_bytes=1000), api_token="secret") as api:
        bearer = {"Authorization": "Bearer secret"}
        problem(api.post("/sweeps", content=b"x" * 2000, headers=bearer), 413)

        def chunks():  # type: ignore[no-untyped-def]
            for _ in range(20):
                yield b"x" * 100

        headers = bearer | {"Content-Type": "application/json"}
        problem(api.post("/sweeps", content=chunks(), headers=headers), 413)


def test_heavy_questions_are_limited_and_cached_ones_are_free(seeded: Database) -> None:
    with asking(seeded.url, Limits(heavy_burst=2, heavy_per_second=0.001)) as api:
        for level in (0.9, 0.91):
            assert api.get(f"/onset?prime=29&level={level}").status_code == 200
        refused = api.get("/onset?prime=29&level=0.92")
        problem(refused, 429)
        assert int(refused.headers["retry-after"]) >= 1
        assert api.get("/onset?prime=29&level=0.9").status_code == 200


def test_an_answer_that_takes_too_long_is_given_up(seeded: Database) -> None:
    with asking(seeded.url, Limits(seconds=0.001)) as api:
        problem(api.get("/crossing?prime=29"), 504)
