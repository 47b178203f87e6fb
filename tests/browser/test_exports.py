"""Every chart can be taken along: pictures, tables, the call and a snippet that runs."""

from __future__ import annotations

import io
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import httpx
import pandas as pd
import pytest
from fixtures.visitor import Visitor

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


def test_pictures_parse_and_carry_the_caption(visitor: Visitor, tmp_path: Path) -> None:
    visitor.open(VIEW)
    png = exported(visitor, "PNG picture", tmp_path)
    assert png.name == "groktime-delay-example-p113.png"
    assert png.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    svg = exported(visitor, "SVG picture", tmp_path)
    words = "".join(ET.parse(svg).getroot().itertext())
    for part in ("suite example", "method robust", "revision"):
        assert part in words


@pytest.mark.parametrize(
    ("entry", "route"),
    [("CSV of delays", "/delay"), ("CSV of speeds", "/speeds"), ("CSV of crossing", "/crossing")],
)
def test_tables_are_those_of_the_api(
    visitor: Visitor, api: httpx.Client, tmp_path: Path, entry: str, route: str
) -> None:
    visitor.open(VIEW)
    table = pd.read_csv(exported(visitor, entry, tmp_path))
    answer = api.get(f"{route}?{visitor.query('delay')}&format=csv")
    pd.testing.assert_frame_equal(table, pd.read_csv(io.StringIO(answer.text)))
    assert len(table)


@pytest.mark.parametrize(
    ("view", "chart", "entry"),
    [
        ("/view/capacity?suite=example", "capacity_fit", "CSV table"),
        ("/view/memorisation?suite=example", "memorisation", "CSV table"),
        ("/view/onset?suite=example", "residual", "CSV table"),
        ("/view/sweeps?suite=example", "coverage", "CSV table"),
    ],
)
def test_every_view_gives_its_table(
    visitor: Visitor, tmp_path: Path, view: str, chart: str, entry: str
) -> None:
    visitor.open(view)
    assert len(pd.read_csv(exported(visitor, entry, tmp_path, chart)))


def copied(visitor: Visitor, entry: str) -> str:
    card = visitor.page.locator(".chart[data-chart=delay]")
    card.locator("summary").click()
    card.locator(".menu-panel").get_by_text(entry, exact=True).click()
    visitor.page.wait_for_selector(".toast.shown")
    return str(visitor.page.evaluate("navigator.clipboard.readText()"))


def test_the_api_call_gives_the_chart(visitor: Visitor) -> None:
    visitor.open(VIEW)
    command = copied(visitor, "Copy API call")
    assert command.startswith("curl '")
    answer = httpx.get(command.removeprefix("curl '").removesuffix("'"), timeout=60)
    assert answer.json()["layout"]["meta"]["title"].startswith("p = 113")


def test_the_python_snippet_runs(visitor: Visitor) -> None:
    visitor.open(VIEW)
    snippet = copied(visitor, "Copy Python snippet")
    check = "assert len(delays) and len(speeds) and len(crossing) == 1"
    done = subprocess.run(
        [sys.executable, "-c", snippet + check], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
