"""The notebook client against a real server."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from groktime.api.client import Client, Refused
from groktime.service.errors import GroktimeError


@pytest.fixture
def client(api: httpx.Client) -> Iterator[Client]:
    with Client(str(api.base_url)) as opened:
        yield opened


def test_a_crossing_is_one_call_away(client: Client) -> None:
    assert client.crossing(prime=29)["status"] == "crossed"


@pytest.mark.parametrize(
    "question",
    ["crossing", "onset", "delay", "regimes", "speeds", "capacity", "law", "delay_law", "tests"],
)
def test_every_question_has_a_method(client: Client, question: str) -> None:
    assert getattr(client, question)(suite="tiny") == client.get(question, suite="tiny")


def test_tables_are_frames(client: Client) -> None:
    speeds = client.frame("speeds", prime=29)
    assert len(speeds) == 60
    assert {"width", "params", "seed", "value", "speed"} <= set(speeds)
    assert list(client.suites().index) == ["decay", "tiny"]


def test_all_runs_come_over_several_pages(client: Client) -> None:
    runs = client.runs(suite="tiny", kind="grok", limit=40)
    assert len(runs) == 90
    assert runs["id"].is_unique


def test_a_curve_is_indexed_by_epoch(client: Client) -> None:
    curve = client.curve(1)
    assert curve.index[0] == 1
    assert curve["train_accuracy"].iloc[-1] > 0.5


def test_a_figure_is_plotlys(client: Client) -> None:
    assert len(client.figure("capacity").data) > 0


def test_a_refusal_says_what_is_accepted(client: Client) -> None:
    with pytest.raises(Refused, match=r"accepted: \[23, 29, 31\]") as refused:
        client.crossing(prime=113)
    assert refused.value.status == 404


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(GroktimeError, match="groktime serve"), Client("http://127.0.0.1:9") as gone:
        gone.suites()
