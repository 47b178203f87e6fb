"""The answer cache: one computation, held answers, bounded memory."""

from __future__ import annotations

import asyncio
import threading

import pytest

from groktime.api.responses import LRU, AnswerCache, Stamp, etag


def body(text: str, stamp: Stamp) -> tuple[bytes, str, Stamp]:
    return text.encode(), "text/plain", stamp


def test_whoever_asks_meanwhile_gets_the_same_computation() -> None:
    cache = AnswerCache()
    started, finish = threading.Event(), threading.Event()
    calls = []

    def compute() -> tuple[bytes, str, Stamp]:
        calls.append(1)
        started.set()
        finish.wait(10)
        return body("answer", (1,))

    async def ask() -> list[bytes]:
        first = asyncio.create_task(cache.computed_once("q", (1,), compute))
        await asyncio.to_thread(started.wait, 10)
        others = [asyncio.create_task(cache.computed_once("q", (1,), compute)) for _ in range(5)]
        await asyncio.sleep(0)
        finish.set()
        return [entry.body for entry in await asyncio.gather(first, *others)]

    assert asyncio.run(ask()) == [b"answer"] * 6
    assert len(calls) == 1


@pytest.mark.parametrize(("running", "computations"), [(True, 1), (False, 2)])
def test_only_while_a_sweep_runs_later_revisions_wait_for_what_is_under_way(
    running: bool, computations: int
) -> None:
    cache = AnswerCache()
    started, finish = threading.Event(), threading.Event()
    calls = []

    def compute() -> tuple[bytes, str, Stamp]:
        calls.append(1)
        started.set()
        finish.wait(10)
        return body("answer", (1,))

    async def ask() -> None:
        first = asyncio.create_task(cache.computed_once("q", (1,), compute, running=running))
        await asyncio.to_thread(started.wait, 10)
        later = asyncio.create_task(cache.computed_once("q", (2,), compute, running=running))
        await asyncio.sleep(0)
        finish.set()
        await asyncio.gather(first, later)

    asyncio.run(ask())
    assert len(calls) == computations


def test_a_failure_reaches_everyone_and_is_not_kept() -> None:
    cache = AnswerCache()

    def fail() -> tuple[bytes, str, Stamp]:
        raise ValueError("no")

    async def ask() -> bytes:
        for _ in range(2):
            with pytest.raises(ValueError, match="no"):
                await cache.computed_once("q", (1,), fail)
        entry = await cache.computed_once("q", (1,), lambda: body("yes", (1,)))
        return entry.body

    assert asyncio.run(ask()) == b"yes"


def test_a_client_that_leaves_does_not_stop_the_others() -> None:
    cache = AnswerCache()
    started, finish = threading.Event(), threading.Event()

    def compute() -> tuple[bytes, str, Stamp]:
        started.set()
        finish.wait(10)
        return body("answer", (1,))

    async def ask() -> bytes:
        impatient = asyncio.create_task(cache.computed_once("q", (1,), compute))
        await asyncio.to_thread(started.wait, 10)
        patient = asyncio.create_task(cache.computed_once("q", (1,), compute))
        await asyncio.sleep(0)
        impatient.cancel()
        finish.set()
        return (await patient).body

    assert asyncio.run(ask()) == b"answer"


@pytest.mark.parametrize(
    ("stamp", "running", "seconds", "served"),
    [
        ((1,), False, 1000.0, True),  # the same data: for ever
        ((2,), False, 0.1, False),  # other data, nothing runs: at once
        ((2,), True, 1.9, True),  # other data while a sweep runs: held
        ((2,), True, 2.1, False),
    ],
)
def test_an_answer_is_served_while_its_data_last_or_a_moment_longer(
    stamp: Stamp, running: bool, seconds: float, served: bool
) -> None:
    now = [0.0]
    cache = AnswerCache(clock=lambda: now[0])
    asyncio.run(cache.computed_once("q", (1,), lambda: body("old", (1,))))
    now[0] = seconds
    assert (cache.fresh("q", stamp, running) is not None) == served


@pytest.mark.parametrize(
    ("current", "looks"),
    [
        (1, 1),  # the database is as it was when the first look began
        (2, 8),  # it has changed since
        (None, 8),  # nobody knows
    ],
)
def test_who_asks_during_a_look_waits_for_it_while_it_is_known_to_be_current(
    current: int | None, looks: int
) -> None:
    cache = AnswerCache()
    begun: list[int] = []
    all_asked = threading.Event()

    def look() -> str:
        begun.append(1)
        assert all_asked.wait(60)
        return "found"

    async def ask() -> list[str]:
        asking = [
            asyncio.ensure_future(cache.looked_once("q", 1, lambda: current, look))
            for _ in range(8)
        ]
        while len(begun) < looks:
            await asyncio.sleep(0)
        all_asked.set()
        return await asyncio.gather(*asking)

    assert asyncio.run(ask()) == ["found"] * 8
    assert len(begun) == looks


def test_a_look_that_fails_is_told_to_all_and_begun_anew() -> None:
    cache = AnswerCache()

    def fail() -> str:
        raise ValueError("no such suite")

    async def ask() -> list[object]:
        asking = (cache.looked_once("q", 1, lambda: 1, fail) for _ in range(3))
        told: list[object] = list(await asyncio.gather(*asking, return_exceptions=True))
        return [*told, await cache.looked_once("q", 1, lambda: 1, lambda: "found")]

    *told, found = asyncio.run(ask())
    assert [str(error) for error in told] == ["no such suite"] * 3
    assert found == "found"


def test_the_least_recently_used_answers_go_first() -> None:
    cache = AnswerCache(max_bytes=250)

    async def fill() -> None:
        for name in "abc":
            await cache.computed_once(name, (1,), lambda: body("x" * 100, (1,)))
            cache.fresh("a", (1,), False)

    asyncio.run(fill())
    kept = [name for name in "abc" if cache.fresh(name, (1,), False)]
    assert kept == ["a", "c"]


def test_a_slow_answer_does_not_replace_one_of_a_later_revision() -> None:
    cache = AnswerCache()
    started, finish = threading.Event(), threading.Event()

    def slow() -> tuple[bytes, str, Stamp]:
        started.set()
        finish.wait(10)
        return body("older", (1, 4))

    async def ask() -> None:
        first = asyncio.create_task(cache.computed_once("q", (1, 4), slow))
        await asyncio.to_thread(started.wait, 10)
        await cache.computed_once("q", (1, 5), lambda: body("newer", (1, 5)))
        finish.set()
        await first

    asyncio.run(ask())
    held = cache.fresh("q", (1, 6), running=True)
    assert held is not None
    assert held.body == b"newer"


def test_what_a_database_says_now_replaces_what_it_said_before_it_was_restored() -> None:
    cache = AnswerCache()

    async def ask() -> None:
        await cache.computed_once("q", (1, 5), lambda: body("lost", (1, 5)))
        await asyncio.sleep(0)
        await cache.computed_once("q", (1, 4), lambda: body("restored", (1, 4)))

    asyncio.run(ask())
    assert cache.fresh("q", (1, 4), running=False) is not None


def test_what_is_remembered_again_is_forgotten_last() -> None:
    remembered: LRU[str, int] = LRU(2)
    for name in ("first", "second", "first", "third"):
        remembered[name] = 1
    assert list(remembered) == ["first", "third"]


def test_an_entry_carries_the_stamp_it_was_computed_from() -> None:
    cache = AnswerCache()
    entry = asyncio.run(cache.computed_once("q", (1,), lambda: body("newer", (2,))))
    assert entry.etag == etag("q", (2,))
    assert cache.fresh("q", (2,), False) is entry
