"""Charts: Plotly JSON, a page, a picture."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import httpx
import pytest

from groktime.api.routes.charts import CHARTS, ChartName

QUERIES = {
    **{name: "prime=29" for name in ("crossing", "delay", "regimes", "speeds")},
    "curves": "run=1&run=2",
}
QUESTIONS = ["crossing", "onset", "delay", "regimes", "speeds", "capacity", "law", "tests"]
PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text("utf-8")


def test_every_name_has_a_chart() -> None:
    assert set(get_args(ChartName)) == set(CHARTS)


def test_every_question_has_a_chart_of_its_name() -> None:
    assert set(QUESTIONS) <= set(CHARTS)


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_documented(name: str) -> None:
    charts = PAGE.split("## Charts")[1].split("## ")[0]
    assert f"`{name}`" in charts


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_a_figure_that_says_what_it_shows(api: httpx.Client, name: str) -> None:
    figure = api.get(f"/charts/{name}?{QUERIES.get(name, '')}").json()
    assert bool(figure["data"]) == (name != "placement")  # no suite here is located
    assert figure["layout"]["meta"]["caption"]


def test_the_charts_of_all_primes_are_those_of_each_without_single_seeds(api: httpx.Client) -> None:
    grid = api.get("/charts/delay/primes?suite=tiny&level=0.9")
    assert grid.json()["suite"] == "tiny"
    suites = api.get("/suites").json()["items"]
    primes = next(suite["primes"] for suite in suites if suite["name"] == "tiny")
    assert [chart["prime"] for chart in grid.json()["charts"]] == primes
    for chart in grid.json()["charts"]:
        alone = api.get(f"/charts/delay?suite=tiny&level=0.9&prime={chart['prime']}").json()
        alone["data"] = [trace for trace in alone["data"] if trace.get("meta") != "detail"]
        assert chart == {"prime": chart["prime"], "figure": alone, "problem": None}
    known = {"If-None-Match": grid.headers["etag"]}
    assert api.get(grid.url, headers=known).status_code == 304


def test_a_prime_that_cannot_be_drawn_tells_why_beside_the_others(api: httpx.Client) -> None:
    asked = "suite=decay&weight_decay=0.1&t_mem=0.999"
    charts = api.get(f"/charts/delay/primes?{asked}").json()["charts"]
    assert charts
    for chart in charts:
        alone = api.get(f"/charts/delay?{asked}&prime={chart['prime']}")
        assert chart["figure"] is None
        assert chart["problem"].items() <= alone.json().items()


def test_the_delay_chart_shows_the_delays_of_the_answer(api: httpx.Client) -> None:
    figure = api.get("/charts/delay?prime=29").json()
    answer = api.get("/delay?prime=29").json()
    drawn = next(t for t in figure["data"] if t.get("name") == "ΔE of each seed")
    assert drawn["y"] == [point["delay"] for point in answer["points"]]


def test_speeds_and_regimes_show_every_run_of_their_answers(api: httpx.Client) -> None:
    speeds = api.get("/speeds?prime=29").json()
    drawn = api.get("/charts/speeds?prime=29").json()["data"]
    seeds = next(t for t in drawn if t["name"] == "T<sub>gen</sub> of each seed")
    assert len(seeds["x"]) == sum(len(point["values"]) for point in speeds["t_gen"])
    regimes = api.get("/regimes?prime=29").json()
    drawn = api.get("/charts/regimes?prime=29").json()["data"]
    assert len(drawn[-1]["x"]) == len(regimes["points"])


def test_a_residual_can_be_drawn_against_a_swept_axis(api: httpx.Client) -> None:
    response = api.get("/charts/residual?suite=decay&axis=weight_decay")
    assert response.status_code == 200


def test_curves_without_runs_show_the_smallest_and_the_largest_model_of_a_cell(
    api: httpx.Client,
) -> None:
    figure = api.get("/charts/curves?suite=tiny&prime=29").json()
    widths = [24, 32]
    assert figure["data"]
    assert all(f"d = {width}" in str(figure) for width in widths)


def test_a_page_carries_the_figure_as_data(api: httpx.Client) -> None:
    page = api.get("/charts/delay?prime=29&format=html").text
    assert re.search(r'<script type="application/json" id="figure">\{', page)
    assert page.count("<script") == 3


def test_without_a_browser_a_picture_is_not_offered(
    api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    response = api.get("/charts/delay?prime=23&format=svg")
    assert response.status_code == 501
    assert response.json()["accepted"] == ["json", "html"]


@pytest.mark.browser
@pytest.mark.parametrize(("form", "begins"), [("png", b"\x89PNG"), ("svg", b"<svg")])
def test_a_picture_is_one(api: httpx.Client, form: str, begins: bytes) -> None:
    response = api.get(f"/charts/delay?prime=29&format={form}")
    assert response.status_code == 200
    assert response.content.startswith(begins)


def test_residuals_are_drawn_against_the_threshold_of_memorising(api: httpx.Client) -> None:
    drawn = api.get("/charts/residual?suite=tiny&axis=t_mem").json()["data"]
    cells = api.get("/tests?suite=tiny").json()["cells"]
    usual = {cell["prime"]: cell["residual"] for cell in cells}
    assert len(drawn) == len(usual)
    for line in drawn:
        prime = line["customdata"][0][0]
        assert dict(zip(line["x"], line["y"], strict=True))[99] == pytest.approx(usual[prime])
        assert len(line["x"]) > 1
        strict = api.get(f"/tests?suite=tiny&prime={prime}&t_mem=0.95").json()["cells"][0]
        assert dict(zip(line["x"], line["y"], strict=True))[95] == pytest.approx(strict["residual"])
