"""What answers where nothing is named, on the database that the demo leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, get_args

import httpx
import pytest
from fixtures.database import Database
from fixtures.http import serving, settings_for

from groktime.api.app import create_app
from groktime.api.client import Client
from groktime.api.middleware import Limits
from groktime.api.routes.charts import ChartName

QUESTIONS = ("crossing", "onset", "delay", "speeds", "regimes", "capacity", "law", "tests")
CHARTS = tuple(f"charts/{name}" for name in get_args(ChartName))
PRIMES = (47, 53, 59, 61, 67, 71, 73, 79, 97, 101, 103, 107, 109, 113, 127, 131, 137, 139)
COMPLETE = (53, 61, 67, 71, 73, 79, *PRIMES[8:])  # both points are recorded


@pytest.fixture(scope="module")
def site(demo_state: Database) -> Iterator[str]:
    """The API as `groktime demo` serves it: with the default settings."""
    settings = settings_for(demo_state.url).model_copy(update={"default_suite": "central"})
    with serving(create_app(settings, Limits(heavy_burst=100_000))) as address:
        yield address


@pytest.fixture(scope="module")
def api(site: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=site, timeout=120) as client:
        yield client


def suites_of(api: httpx.Client) -> dict[str, Any]:
    return {suite["name"]: suite for suite in api.get("/suites").json()["items"]}


Standings = Callable[[int], dict[str, tuple[int, bool, int]]]


@pytest.fixture(scope="module")
def standings(api: httpx.Client) -> Standings:
    """What each suite that has the prime says when it is named: how many of the two points it has,
    whether it has one setting, how many runs."""

    @cache
    def at(prime: int) -> dict[str, tuple[int, bool, int]]:
        found = {}
        for name, suite in suites_of(api).items():
            if prime in suite["primes"]:
                response = api.get("/crossing", params={"suite": name, "prime": prime})
                if response.status_code == 200:
                    found[name] = standing(response.json())
        return found

    def standing(answer: Any) -> tuple[int, bool, int]:
        crossing, onset = (answer[point]["estimate"] for point in ("p_cross", "p_onset"))
        points = 0 if crossing is None else 1 if onset is None else 2
        return points, not answer["setting"], sum(answer["provenance"]["runs"].values())

    return at


def test_the_demo_leaves_eighteen_primes(api: httpx.Client) -> None:
    there = {prime for suite in suites_of(api).values() for prime in suite["primes"]}
    assert there >= set(PRIMES)


@pytest.mark.slow
@pytest.mark.parametrize("prime", PRIMES)
def test_every_route_answers_with_only_a_prime(api: httpx.Client, prime: int) -> None:
    for route in (*QUESTIONS, *CHARTS):
        response = api.get(f"/{route}", params={"prime": prime})
        assert response.status_code == 200, (route, response.text)


@pytest.mark.parametrize("prime", PRIMES)
def test_the_crossing_of_a_prime_comes_from_the_suite_that_says_most(
    api: httpx.Client, standings: Standings, prime: int
) -> None:
    answer = api.get("/crossing", params={"prime": prime}).json()
    assert answer["prime"] == prime
    assert answer["p_cross"]["estimate"]
    assert answer["chosen"]["suite"]
    assert standings(prime)[answer["suite"]] == max(standings(prime).values())
    if prime in COMPLETE:
        assert answer["p_onset"]["estimate"]


@pytest.mark.parametrize("route", [*QUESTIONS, *CHARTS])
def test_every_route_answers_without_any_parameter(api: httpx.Client, route: str) -> None:
    response = api.get(f"/{route}")
    assert response.status_code == 200, response.text
    if route in CHARTS:
        figure = response.json()
        assert figure["data"]
        assert not figure["layout"]["meta"].get("empty")


def test_what_opens_first_is_the_papers_prime_of_the_suite_with_most_cells_that_have_both_points(
    api: httpx.Client, standings: Standings
) -> None:
    start = api.get("/start").json()
    found = [standings(prime) for prime in PRIMES]
    both = Counter(name for at in found for name, (points, *_) in at.items() if points == 2)
    assert both[start["suite"]] == max(both.values())
    assert start["prime"] == 113
    answer = api.get("/crossing").json()
    assert (answer["suite"], answer["prime"]) == (start["suite"], start["prime"])
    assert answer["p_cross"]["estimate"]
    assert answer["p_onset"]["estimate"]
    assert answer["chosen"] == start["chosen"]


def test_exactly_one_suite_is_the_default_and_untrained_primes_are_told(
    api: httpx.Client,
) -> None:
    suites = suites_of(api)
    start = api.get("/start").json()["suite"]
    assert [name for name in suites if suites[name]["default"]] == [start]
    assert 109 in suites["central-two-cores"]["untrained"]
    assert 113 not in suites["central-two-cores"]["untrained"]
    assert suites["central-two-cores-released"]["untrained"] == []


def test_a_swept_suite_answers_by_its_baseline_and_lists_the_others(api: httpx.Client) -> None:
    asked = {"suite": "weight_decay-two-cores-released", "prime": 113}
    answer = api.get("/crossing", params=asked).json()
    assert answer["setting"] == {"weight_decay": 1.0}
    assert answer["chosen"]["other_settings"] == [{"weight_decay": w} for w in (0.1, 0.3, 3.0)]
    law = api.get("/law", params={"suite": asked["suite"]}).json()
    assert law["setting"] == {"weight_decay": 1.0}


def test_a_suite_that_is_not_there_is_refused_and_no_other_one_answers(api: httpx.Client) -> None:
    for route in ("start", *QUESTIONS, "charts/delay"):
        response = api.get(f"/{route}", params={"suite": "centrall", "prime": 113})
        assert response.status_code == 404
        assert "mini" in response.json()["accepted"]


def test_the_client_asks_by_the_same_rule(api: httpx.Client, site: str) -> None:
    with Client(site) as client:
        answer: dict[str, Any] = client.crossing(prime=113)
    assert answer["suite"] == api.get("/crossing", params={"prime": 113}).json()["suite"]
