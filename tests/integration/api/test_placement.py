"""A located suite as the API tells it, and how one is started."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fixtures.curves import Ended
from fixtures.database import Database
from fixtures.http import asking
from fixtures.located import small_cell, train_located
from fixtures.seeded import made_up_run, p_cross

from groktime.api.client import Client, Refused
from groktime.db.claims import claim
from groktime.db.recorder import Recorder
from groktime.db.suites import open_runs
from groktime.db.sweeps import list_sweeps
from groktime.service.suites import load_suite
from groktime.service.suites.loader import cell_suite
from groktime.service.sweep.jobs import copy_suite_files
from groktime.service.sweep.selection import register

SUITE = small_cell()


@pytest.fixture
def api(seeded: Database) -> Iterator[httpx.Client]:
    """An API that may start sweeps, on a cluster that is not there."""
    with asking(seeded.url, api_token="secret", ray_jobs_address="http://127.0.0.1:9") as client:
        client.headers["Authorization"] = "Bearer secret"
        yield client


def test_a_cell_under_way_tells_what_it_knows_and_wants_next(
    api: httpx.Client, seeded: Database
) -> None:
    assert train_located(seeded.engine, SUITE, 5) == 5
    answer = api.get(f"/suites/{SUITE.name}/placement").json()
    (cell,) = answer["cells"]
    assert (answer["precision"], cell["prime"], cell["runs"], cell["ended"]) == (0.08, 29, 5, None)
    assert cell["next"][0]["why"]
    assert [step["runs"] for step in cell["steps"]] == [1, 2, 3, 4, 5]
    assert cell["core_seconds"] == pytest.approx(5 * 1.5)
    (row,) = csv.DictReader(io.StringIO(api.get(answer_csv()).text))
    assert (row["next.why"], row["runs"]) == (cell["next"][0]["why"], "5")


def answer_csv() -> str:
    return f"/suites/{SUITE.name}/placement?format=csv"


def test_the_interval_shrinks_until_the_cell_is_placed_and_answers_say_how_they_came_about(
    api: httpx.Client, seeded: Database
) -> None:
    trained = train_located(seeded.engine, SUITE, 60)
    answer = api.get(f"/suites/{SUITE.name}/placement").json()
    (cell,) = answer["cells"]
    assert (cell["runs"], cell["next"], cell["ended"]) == (trained, [], "placed")
    found = cell["crossing"]
    assert found["low"] < found["estimate"] < found["high"]
    assert found["estimate"] == pytest.approx(p_cross(SUITE.runs()[0].k_mem), rel=0.15)
    widths = [s["onset"]["half_width"] for s in cell["steps"] if s["onset"]["half_width"]]
    assert widths[-1] < widths[0] / 2
    crossing = api.get("/crossing", params={"suite": SUITE.name, "prime": 29}).json()
    made = crossing["provenance"]
    assert (made["design"], made["precision"]["asked"]) == ("locate", 0.08)
    assert made["runs"]["speed"] + made["runs"]["grok"] == trained
    assert api.get("/crossing?suite=tiny&prime=29").json()["provenance"]["design"] == "grid"
    assert {s["name"]: s["design"] for s in api.get("/suites").json()["items"]} == {
        "decay": "grid",
        "tiny": "grid",
        SUITE.name: "locate",
    }


def test_charts_shade_where_a_search_that_goes_on_expects_the_points(
    api: httpx.Client, seeded: Database
) -> None:
    train_located(seeded.engine, SUITE, 8)
    asked = {"suite": SUITE.name, "prime": 29}
    (cell,) = api.get(f"/suites/{SUITE.name}/placement").json()["cells"]
    onset = cell["onset"]
    figure = api.get("/charts/delay", params=asked).json()
    dotted = [s for s in figure["layout"]["shapes"] if s["line"].get("dash") == "dot"]
    bands = [s for s in dotted if s["type"] == "rect"]
    assert any(s["x0"] <= onset["estimate"] <= s["x1"] for s in bands)
    note = figure["layout"]["meta"]["notes"][0]["text"]
    assert "Being located: 8 runs so far" in note
    drawn = api.get("/charts/placement", params=asked).json()
    lines = {trace.get("name"): trace for trace in drawn["data"]}
    assert lines["P<sub>onset</sub>"]["x"][-1] == 8
    train_located(seeded.engine, SUITE, 60)
    figure = api.get("/charts/delay", params=asked).json()
    assert not any(
        s["line"].get("dash") == "dot" and s["type"] == "rect" for s in figure["layout"]["shapes"]
    )
    assert "design locate" in figure["layout"]["meta"]["caption"]


def test_a_run_set_aside_counts_where_it_was_chosen_and_is_told_everywhere(
    api: httpx.Client, seeded: Database
) -> None:
    train_located(seeded.engine, SUITE, 4)
    engine, least = seeded.engine, min(run.model.width for run in SUITE.runs())
    slow = next(r for r in SUITE.runs() if r.kind == "speed" and r.model.width == least)
    suite_id = register(SUITE, engine, [slow]).suite_id
    (held,) = claim(engine, [open_runs(engine, suite_id)[slow.key]], "worker", 60)
    rows, _ = made_up_run(slow)
    with Recorder(engine, [held], lease_seconds=60) as recorder:
        assert recorder.record(0, 1, rows[:200])
        recorder.finish(0, Ended(200, state="set_aside", stopped_by="set_aside"))
    covered = api.get(f"/suites/{SUITE.name}/coverage").json()
    assert (covered["states"]["done"], covered["states"]["set_aside"]) == (4, 1)
    (cell,) = api.get(f"/suites/{SUITE.name}/placement").json()["cells"]
    assert cell["runs"] == 5
    asked = {"suite": SUITE.name, "state": "set_aside"}
    (run,) = api.get("/runs", params=asked).json()["items"]
    assert (run["state"], run["last_epoch"], run["id"]) == ("set_aside", 200, held.run_id)
    table = list(csv.DictReader(io.StringIO(api.get(f"/export/{SUITE.name}.csv").text)))
    (exported,) = [row for row in table if row["state"] == "set_aside"]
    assert exported["set_aside_epoch"] == "200"


def test_a_grid_has_no_placement(api: httpx.Client) -> None:
    told = api.get("/suites/tiny/placement")
    assert (told.status_code, told.json()["parameter"]) == (422, "suite")


def test_a_located_cell_is_submitted_as_a_suite_named_after_the_question(
    api: httpx.Client, seeded: Database
) -> None:
    with Client(str(api.base_url), token="secret") as client, pytest.raises(Refused) as refused:
        client.locate(
            29, precision=0.08, seeds=5, widths=(8, 40), max_epochs=600, resources={"workers": 1}
        )
    assert refused.value.status == 503  # asked for and noted, but there is no cluster
    with seeded.engine.connect() as connection:
        (noted,) = list_sweeps(connection)
    assert (noted.suite, noted.filters) == (SUITE.name, {"resources": {"workers": 1}})


def test_hours_seeds_apart_and_a_prior_belong_to_the_question_as_on_the_command_line(
    api: httpx.Client, seeded: Database
) -> None:
    more = {"max_hours": 2.0, "seeds_apart": True, "prior": ["tiny"]}
    body = {"prime": 29, "precision": 0.08, "seeds": 5, "widths": [8, 40], "max_epochs": 600}
    assert api.post("/sweeps", json={"locate": {**body, **more}}).status_code == 503
    suite = small_cell(**more)
    with seeded.engine.connect() as connection:
        (noted,) = list_sweeps(connection)
    assert noted.suite == suite.name != SUITE.name
    design = suite.file.design
    assert design is not None
    assert (design.max_hours, design.seeds_apart, design.prior) == (2.0, True, ("tiny",))


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "suite"),
        ({"suite": "demo", "locate": {"prime": 29}}, "suite"),
        ({"locate": {"prime": 29}, "filters": {"seed": [1]}}, "filters"),
        ({"locate": {"prime": 29, "settings": {"colour": 1}}}, "locate.settings.colour"),
        ({"locate": {"prime": 29, "precision": 0}}, "locate.precision"),
        ({"locate": {"prime": 30}}, "locate"),
        ({"locate": {"prime": 29, "widths": [9, 40]}}, "locate"),
        ({"locate": {"prime": 29, "place": ["onset", "onset"]}}, "locate"),
        ({"locate": {"prime": 29, "shell": "true"}}, "locate.shell"),
        ({"locate": {"prime": 29, "max_hours": 0}}, "locate.max_hours"),
        ({"locate": {"prime": 29, "prior": ["absent"]}}, "locate.prior"),
        ({"locate": {"prime": 29, "prior": ["tiny", "tiny"]}}, "given twice"),
    ],
)
def test_a_cell_that_cannot_be_is_refused_by_its_field_and_not_noted(
    api: httpx.Client, body: dict[str, object], named: str
) -> None:
    refused = api.post("/sweeps", json=body)
    told = refused.json()
    assert refused.status_code == 422
    assert named in json.dumps([told["detail"], told.get("parameter")])
    assert api.get("/sweeps").json() == {"items": []}


def test_the_job_of_a_cell_has_the_file_of_the_same_suite(tmp_path: Path) -> None:
    suite = cell_suite(113, {"weight_decay": 0.3, "positions": "none"}, precision=0.05)
    copied = load_suite(tmp_path / copy_suite_files(suite, tmp_path))
    assert (copied.name, copied.digest) == (suite.name, suite.digest)
    assert copied.stored() == suite.stored()
