"""First passages kept in chunks are those of the whole curve; non-finite epochs never count."""

from __future__ import annotations

import itertools

import numpy as np
from fixtures.curves import curve
from fixtures.runs import capacity_spec, grok_spec
from hypothesis import given
from hypothesis import strategies as st

from groktime.db.curve import FirstPassages, RunProgress
from groktime.service.spec import LADDER, needed


@given(
    n=st.integers(1, 200),
    counts=st.lists(st.tuples(st.integers(0, 200), st.booleans()), min_size=1, max_size=60),
    cuts=st.lists(st.integers(1, 59), max_size=5),
)
def test_passages_in_chunks_equal_a_search_of_the_whole_curve(
    n: int, counts: list[tuple[int, bool]], cuts: list[int]
) -> None:
    correct = np.array([min(count, n) for count, _ in counts])
    loss = np.array([1.0 if finite else np.nan for _, finite in counts])
    passages = FirstPassages(n)
    edges = sorted({0, len(counts), *(cut for cut in cuts if cut < len(counts))})
    for start, end in itertools.pairwise(edges):
        passages.add(start + 1, correct[start:end], loss[start:end])
    expected = [
        next(
            (
                epoch
                for epoch, (count, finite) in enumerate(zip(correct, loss == 1.0, strict=True), 1)
                if finite and count >= needed(k / 1000, n)
            ),
            None,
        )
        for k in LADDER
    ]
    assert passages.epochs == expected


def test_a_clock_that_a_run_does_not_have_is_never_reached() -> None:
    spec = capacity_spec()
    progress = RunProgress(spec)
    progress.add(1, curve(spec, 30))
    assert set(progress.passages["val"].epochs) == {None}
    assert set(progress.passages["eval"].epochs) == {None}
    assert progress.passages["online"].epochs[0] is not None


def test_the_best_loss_ignores_non_finite_epochs() -> None:
    spec = grok_spec()
    rows = curve(spec, 5)
    rows["train_loss"] = [3, np.nan, 2, -np.inf, 4]
    progress = RunProgress(spec)
    progress.add(1, rows)
    assert progress.best_train_loss == 2
