"""Every route on a real database through real HTTP."""

from __future__ import annotations

import csv
import io
import json
import re

import httpx
import pytest
from fixtures.commands import wait_until
from fixtures.database import Database
from fixtures.http import asking
from fixtures.seeded import p_cross
from sqlalchemy import text

ANSWERS = {
    "/crossing?prime=29": 1,
    "/onset?prime=29": 6,
    "/delay?prime=29": 30,
    "/regimes?prime=29": 6,
    "/speeds?prime=29": 60,
    "/capacity": 24,
    "/law": 16,
    "/delay_law": 5,
    "/tests": 3,
    "/suites": 2,
    "/suites/tiny/coverage": 40,
    "/suites/tiny/cells": 60,
    "/runs?suite=tiny&limit=50": 50,
    "/runs/1/curve?points=10": None,
}


@pytest.mark.parametrize("path", ANSWERS)
def test_every_answer_has_a_json_form(api: httpx.Client, path: str) -> None:
    response = api.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    text = json.dumps(response.json(), allow_nan=False)
    assert "NaN" not in text


@pytest.mark.parametrize("path", ANSWERS)
@pytest.mark.parametrize("asked_by", ["parameter", "header"])
def test_every_answer_has_a_csv_twin(api: httpx.Client, path: str, asked_by: str) -> None:
    if asked_by == "parameter":
        response = api.get(path, params={"format": "csv"} | dict(httpx.URL(path).params))
    else:
        response = api.get(path, headers={"Accept": "text/csv"})
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(response.text)))
    expected = ANSWERS[path]
    assert rows if expected is None else len(rows) == expected


def test_a_table_carries_what_its_answer_says_once(api: httpx.Client) -> None:
    def first(path: str) -> dict[str, str]:
        text = api.get(path, headers={"Accept": "text/csv"}).text
        return next(csv.DictReader(io.StringIO(text)))

    onset, told = first("/onset?prime=29"), api.get("/onset?prime=29").json()["p_onset"]
    assert float(onset["p_onset.estimate"]) == told["estimate"]
    assert (onset["p_onset.status"], onset["thresholds.t_mem"]) == (told["status"], "0.99")
    capacity, told = first("/capacity"), api.get("/capacity").json()
    assert float(capacity["fit.slope"]) == told["fit"]["slope"]
    assert float(capacity["c_model.value"]) == told["c_model"]["value"]
    law, told = first("/law"), api.get("/law").json()
    assert float(law["pooled.a"]) == told["pooled"]["a"]
    assert float(law["rivals.power.aic"]) != float(law["rivals.exponential.aic"])


def test_the_table_of_speeds_tells_a_diverged_run_from_the_count(api: httpx.Client) -> None:
    text = api.get("/speeds?prime=29&format=csv").text
    rows = [r for r in csv.DictReader(io.StringIO(text)) if r["diverged"] != "0"]
    assert {r["diverged"] for r in rows} == {"1"}
    assert [r["seed"] for r in rows if r["run_diverged"] == "True"] == ["5"]
    assert len(rows) == 5


def test_the_crossing_answers_with_nothing_but_a_prime(api: httpx.Client) -> None:
    answer = api.get("/crossing", params={"prime": 29}).json()
    assert answer["suite"] == "tiny"
    assert answer["p_cross"]["estimate"] == pytest.approx(p_cross(answer["k_mem"]), rel=0.06)
    assert set(answer) >= {
        *("suite", "revision", "prime", "setting", "method", "clock", "units", "status"),
        *("p_cross", "epochs", "roots", "p_onset", "residual", "p_mem", "c_model", "seeds"),
        *("censored", "curves", "provenance"),
    }
    assert set(answer["curves"]) == {"t_mem", "t_gen"}


def test_a_swept_axis_is_a_filter(api: httpx.Client) -> None:
    path = "/crossing?suite=decay&prime=23&weight_decay=0.1"
    assert api.get(path).json()["setting"] == {"weight_decay": 0.1}


@pytest.mark.parametrize("operation", ["/", "division", "%2F"])
def test_an_operation_can_be_written_as_a_word(api: httpx.Client, operation: str) -> None:
    assert api.get(f"/crossing?prime=29&operation={operation}").status_code == 200


def test_an_unescaped_plus_means_addition(api: httpx.Client) -> None:
    problem = api.get("/crossing?prime=29&operation=+").json()
    assert (problem["value"], problem["accepted"]) == ("+", ["/"])


def test_runs_are_filtered_sorted_and_paged(api: httpx.Client) -> None:
    query = "/runs?suite=tiny&kind=speed&width=8&width=32&sort=seed&order=desc&limit=4"
    seen: list[int] = []
    path: str | None = query
    while path is not None:
        response = api.get(path)
        page = response.json()
        assert {(run["kind"], run["width"]) for run in page["items"]} <= {
            ("speed", 8),
            ("speed", 32),
        }
        seen += [run["seed"] for run in page["items"]]
        link = response.links.get("next")
        path = link["url"] if link else None
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == page["total"] == 30


def test_a_cursor_of_another_order_is_refused(api: httpx.Client) -> None:
    cursor = api.get("/runs?limit=1").json()["next"]
    response = api.get("/runs", params={"limit": 1, "sort": "width", "cursor": cursor})
    assert response.status_code == 422
    assert "another order" in response.json()["detail"]


@pytest.mark.parametrize("cursor", ["x", "bm9uc2Vuc2U", "WzEsMiwzXQ", "W10", "*" * 50])
def test_a_made_up_cursor_is_refused(api: httpx.Client, cursor: str) -> None:
    assert api.get("/runs", params={"cursor": cursor}).status_code == 422


def test_a_run_and_its_epochs_can_be_asked_for(api: httpx.Client) -> None:
    run = api.get("/runs/1").json()
    assert run["spec"]["kind"] == run["run"]["kind"]
    curve = api.get("/runs/1/curve", params={"epochs": [2, 3]}).json()
    assert curve["epoch"] == [2, 3]
    assert curve["sampled"]


def test_a_suite_tells_how_it_was_written(api: httpx.Client) -> None:
    detail = api.get("/suites/decay").json()
    assert detail["spec"]["axes"] == {"weight_decay": [0.1, 1.0]}
    assert detail["summary"]["complete"]


def test_health_says_that_the_database_answers(api: httpx.Client) -> None:
    assert api.get("/health").json()["database"] == "ok"


def test_metrics_count_runs_and_requests(api: httpx.Client) -> None:
    api.get("/health")
    text = api.get("/metrics").text
    assert 'groktime_runs{kind="speed",state="failed"} 1.0' in text
    assert 'route="/health"' in text
    assert 'groktime_epochs_recorded{kind="grok"}' in text


def test_forecasts_are_listed_even_when_there_are_none(api: httpx.Client) -> None:
    assert api.get("/suites/tiny/forecasts").json() == {"items": []}
    table = api.get("/suites/tiny/forecasts?format=csv").text
    assert table.startswith("id,suite,created_at,prime,setting,convention,quantity,estimate,low")


@pytest.mark.parametrize(
    "path",
    [
        *("/crossing?prime=29", "/crossing?prime=29&format=csv", "/crossing?prime=113"),
        *("/charts/speeds?prime=29", "/runs/1", "/suites", "/health", "/openapi.json"),
        *("/", "/docs", "/static/palette.json", "/nothing", "/export/tiny.csv"),
    ],
)
def test_head_is_get_without_its_body(api: httpx.Client, path: str) -> None:
    got, head = api.get(path), api.head(path)
    assert head.status_code == got.status_code
    assert head.content == b""
    for name in ("content-type", "content-length", "etag", "cache-control", "vary"):
        assert head.headers.get(name) == got.headers.get(name), name
    assert head.headers["x-request-id"]


def test_head_knows_the_clients_copy(api: httpx.Client) -> None:
    tag = api.head("/crossing?prime=29").headers["etag"]
    assert api.head("/crossing?prime=29", headers={"If-None-Match": tag}).status_code == 304


def test_head_ends_a_stream_at_once(api: httpx.Client) -> None:
    head = api.head("/events", timeout=10)
    assert head.status_code == 200
    assert head.headers["content-type"].startswith("text/event-stream")
    # Streams of other servers in this process are counted, too, until they have ended.
    wait_until(lambda: "groktime_event_clients 0.0" in api.get("/metrics").text)
    assert 'method="HEAD",route="/events",status="200"' in api.get("/metrics").text


def test_other_methods_get_a_plain_refusal(api: httpx.Client) -> None:
    response = api.put("/crossing")
    assert response.status_code == 405
    assert response.headers["allow"] == "GET, HEAD"
    assert response.headers["content-type"] == "application/problem+json"


def test_the_page_and_its_files_are_served(api: httpx.Client) -> None:
    page = api.get("/")
    assert page.headers["content-type"].startswith("text/html")
    script = re.search(r'src="(/static/v-\w+/page\.js)"', page.text)
    assert script is not None
    for view in ("start", "delay"):  # one script has all views
        assert f"// views/{view}.js" in api.get(script[1]).text
    assert api.get("/view/delay").text == page.text
    assert api.get("/static/palette.json").json()
    assert api.get("/view/nothing").status_code == 404


def test_files_are_sent_compressed_to_whoever_takes_it_and_once(api: httpx.Client) -> None:
    plain = api.get("/static/app.js", headers={"Accept-Encoding": "identity"})
    packed = api.get("/static/app.js", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"])
    assert packed.text == plain.text
    assert packed.headers["etag"] != plain.headers["etag"]
    for response in (plain, packed):
        assert response.headers["vary"] == "Accept-Encoding"
        known = api.get("/static/app.js", headers={"If-None-Match": response.headers["etag"]})
        assert known.status_code == 304
        assert not known.content


def test_files_are_kept_for_as_long_as_their_version_lives(api: httpx.Client) -> None:
    named = re.search(r'"(/static/v-\w+/)page.js"', api.get("/").text)
    assert named is not None
    assert "immutable" in api.get(named[1] + "page.js").headers["cache-control"]
    for other in ("/static/", "/static/v-000000000000/"):
        response = api.get(other + "page.js")
        assert response.text == api.get(named[1] + "page.js").text
        assert response.headers["cache-control"] == "no-cache"


def test_the_report_of_a_suite_is_one_page_without_a_script(api: httpx.Client) -> None:
    response = api.get("/suites/tiny/report", timeout=300)
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "Suite tiny" in response.text
    assert "<script" not in response.text
    assert api.get("/suites/absent/report").status_code == 404


@pytest.mark.parametrize(
    "damage",
    [
        "spec = '[1, 2]'",
        "spec = '\"text\"'",
        "recorded = '[1]'",
        """spec = '{"analysis": {"thresholds": 5}}'""",
        """spec = '{"analysis": {"thresholds": {"t_mem": "much"}}}'""",
        """recorded = '{"versions": "all"}'""",
        "frozen_at = '0100-01-01 BC'",
        "frozen_at = 'infinity'",
        "frozen_at = '-infinity'",
    ],
)
def test_a_damaged_suite_does_not_take_the_others_down(seeded: Database, damage: str) -> None:
    with seeded.engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO suites (name, spec, hash) VALUES ('broken', '{}', repeat('0', 64)); "
                f"UPDATE suites SET {damage} WHERE name = 'broken'"
            )
        )
    with asking(seeded.url) as api:
        listed = api.get("/suites")
        assert listed.status_code == 200
        names = [item["name"] for item in listed.json()["items"]]
        damaged = [item["name"] for item in listed.json()["damaged"]]
        assert sorted(names + damaged) == ["broken", "decay", "tiny"]
        assert api.get("/suites?format=csv").status_code == 200
        assert api.get("/crossing?prime=29").status_code == 200
        assert api.get("/crossing?suite=tiny&prime=29").status_code == 200
        if "analysis" in damage:
            refused = api.get("/crossing?suite=broken")
            assert refused.status_code == 422
            assert "broken is damaged: analysis.thresholds" in refused.json()["detail"]
        for path in ("/suites/broken", "/crossing?suite=broken", "/events?suite=broken"):
            if damaged:
                refused = api.get(path)
                assert refused.status_code == 422
                assert "broken is damaged" in refused.json()["detail"]
