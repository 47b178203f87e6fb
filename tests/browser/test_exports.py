"""Every chart can be taken along: pictures, tables, the call and a snippet that runs."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import httpx
import pandas as pd
import pytest
from fixtures.visitor import Visitor

READ_TOKEN = "a-token-for-reading"
VIEW = "/view/delay?suite=example&train_fraction=0.5&prime=113"


def exported(visitor: Visitor, entry: str, tmp_path: Path, chart: str = "delay") -> Path:
    """Choose an entry of the chart's export menu and keep the file."""
    card = visitor.page.locator(f".chart[data-chart={chart}]")
    card.locator("summary").click()
    with visitor.page.expect_download() as download:
        card.locator(".menu-panel").get_by_text(entry, exact=True).click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    return path


def test_the_menu_is_never_seen_empty(visitor: Visitor) -> None:
    visitor.open(VIEW)
    shown = visitor.page.evaluate(
        """() => {
            const menu = document.querySelector(".chart .menu");
            menu.querySelector("summary").click();
            return [menu.open, menu.querySelector(".menu-panel").innerText];
        }"""
    )
    assert shown[0]
    assert "PNG picture" in shown[1]


def test_pictures_parse_and_carry_the_caption(visitor: Visitor, tmp_path: Path) -> None:
    visitor.open(VIEW)
    png = exported(visitor, "PNG picture", tmp_path)
    assert png.name == "groktime-delay-example-p113-train_fraction-0.5.png"
    assert png.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    svg = exported(visitor, "SVG picture", tmp_path)
    words = "".join(ET.parse(svg).getroot().itertext())
    for part in ("suite example", "method robust", "revision"):
        assert part in words


def test_tables_are_those_of_the_api(visitor: Visitor, api: httpx.Client, tmp_path: Path) -> None:
    visitor.open(VIEW)
    for name, route in (("delays", "/delay"), ("speeds", "/speeds"), ("crossing", "/crossing")):
        table = pd.read_csv(exported(visitor, f"CSV of {name}", tmp_path))
        answer = api.get(f"{route}?{visitor.query('delay')}&format=csv")
        pd.testing.assert_frame_equal(table, pd.read_csv(io.StringIO(answer.text)))
        assert len(table)


@pytest.mark.parametrize(
    ("view", "charts"),
    [
        ("/view/capacity?suite=example", ["capacity", "capacity_fit"]),
        ("/view/memorisation?suite=example", ["memorisation", "memorisation_inverse"]),
        ("/view/onset?suite=example", ["onset", "residual"]),
        ("/view/runs?suite=example&kind=grok&run=1", ["curves"]),
        ("/view/sweeps?suite=example", ["coverage"]),
    ],
)
def test_every_chart_gives_its_table(
    visitor: Visitor, tmp_path: Path, view: str, charts: list[str]
) -> None:
    visitor.open(view)
    for chart in charts:
        assert len(pd.read_csv(exported(visitor, "CSV table", tmp_path, chart)))


def test_tables_are_saved_from_a_closed_server(inside: Visitor, tmp_path: Path) -> None:
    card = inside.page.locator(".chart[data-chart=coverage]")
    card.locator("summary").click()
    with inside.page.expect_download() as download:
        card.locator(".menu-panel").get_by_text("CSV table").click()
    download.value.save_as(tmp_path / "coverage.csv")
    assert "prime" in pd.read_csv(tmp_path / "coverage.csv").columns


def copied(visitor: Visitor, entry: str, chart: str = "delay") -> str:
    visitor.page.evaluate("document.getElementById('toast').classList.remove('shown')")
    card = visitor.page.locator(f".chart[data-chart={chart}]")
    card.locator("summary").click()
    card.locator(".menu-panel").get_by_text(entry, exact=True).click()
    visitor.page.wait_for_selector(".toast.shown")
    return str(visitor.page.evaluate("navigator.clipboard.readText()"))


def ran(snippet: str) -> str:
    """What Python complains about when it runs the snippet."""
    done = subprocess.run(
        [sys.executable, "-c", snippet],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.stderr


def test_the_api_call_and_the_python_snippet_give_the_same_data(visitor: Visitor) -> None:
    visitor.open(VIEW)
    command = copied(visitor, "Copy API call")
    assert command.startswith("curl '")
    answer = httpx.get(command.removeprefix("curl '").removesuffix("'"), timeout=60)
    assert answer.json()["layout"]["meta"]["title"].startswith("p = 113")
    snippet = copied(visitor, "Copy Python snippet")
    check = "assert len(delays) and len(speeds) and len(crossing) == 1"
    assert ran(snippet + check) == ""


def test_from_a_closed_server_call_and_snippet_read_the_token_from_the_environment(
    inside: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROKTIME_READ_TOKEN", READ_TOKEN)
    snippet = copied(inside, "Copy Python snippet", "coverage")
    assert READ_TOKEN not in snippet
    assert ran(f"{snippet}assert len(coverage)") == ""
    command = copied(inside, "Copy API call", "coverage")
    assert READ_TOKEN not in command
    curl, _, header, address = shlex.split(os.path.expandvars(command))
    assert curl == "curl"
    answer = httpx.get(address, headers=dict([header.split(": ")]), timeout=60)
    assert answer.json()["layout"]["meta"]["title"] == "Coverage of grok runs"
