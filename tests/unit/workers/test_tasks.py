"""Datasets: tables, splits and random labels."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from worker_runs import make_run, random_labels

from groktime.service.spec import ModularData, PermutationData, ShuffledData
from groktime.workers.tasks import make_dataset


@pytest.mark.parametrize("operation", ["+", "-", "*", "/"])
def test_every_answer_solves_its_equation(operation: str) -> None:
    data = make_dataset(make_run(data=ModularData(prime=13, operation=operation)))
    x, y = np.concatenate([data.x_train, data.x_val]), np.concatenate([data.y_train, data.y_val])
    a, b = x[:, 0], x[:, 2]
    # Division is checked by multiplying back.
    left = {"+": a + b, "-": a - b, "*": a * b, "/": y * b}[operation]
    right = a if operation == "/" else y
    assert np.array_equal(left % 13, right % 13)
    assert set(x[:, 1]) == {13}
    assert set(x[:, 3]) == {14}
    assert len(x) == len({tuple(row) for row in x}) == 13 * (12 if operation == "/" else 13)
    assert (operation == "/") == (0 not in b)


@pytest.mark.parametrize("split", ["random", "sequential", "alternating"])
def test_a_split_has_the_sizes_its_spec_says(split: str) -> None:
    fraction = 0.5 if split == "alternating" else 0.3
    spec = make_run(data=ModularData(prime=11, train_fraction=fraction, split=split))
    data = make_dataset(spec)
    assert len(data.y_train) == spec.data.n_train
    assert len(data.y_val) == spec.data.n_val
    seen = {tuple(row) for row in data.x_train} & {tuple(row) for row in data.x_val}
    assert not seen


def test_a_sequential_split_trains_the_first_b_of_every_a() -> None:
    data = make_dataset(
        make_run(data=ModularData(prime=11, operation="+", train_fraction=0.3, split="sequential"))
    )
    assert set(data.x_train[:, 2]) == {0, 1, 2}
    assert len(data.x_train) == 33


def test_an_alternating_split_trains_every_other_b() -> None:
    data = make_dataset(make_run(data=ModularData(prime=11, operation="+", split="alternating")))
    assert set(data.x_train[:, 2]) == {0, 2, 4, 6, 8, 10}


def test_the_same_seed_gives_the_same_split_at_every_width() -> None:
    narrow, wide = make_dataset(make_run(width=8)), make_dataset(make_run(width=64, depth=3))
    assert np.array_equal(narrow.x_train, wide.x_train)
    other = make_dataset(make_run(seed=43))
    assert not np.array_equal(narrow.x_train, other.x_train)


def test_shuffled_labels_are_the_tasks_labels_in_another_order() -> None:
    task = make_dataset(make_run(data=ModularData(prime=11)))
    shuffled = make_dataset(make_run(data=ShuffledData(prime=11)))
    assert np.array_equal(task.x_train, shuffled.x_train)
    assert np.array_equal(np.sort(task.y_train), np.sort(shuffled.y_train))
    assert not np.array_equal(task.y_train, shuffled.y_train)
    assert len(shuffled.y_val) == 0


def test_random_labels_cover_all_tokens() -> None:
    data = make_dataset(make_run(data=random_labels(5000)))
    assert set(data.x_train.ravel()) == set(data.y_train) == set(range(13))


def test_permutations_compose_right_to_left() -> None:
    data = make_dataset(make_run(data=PermutationData()))
    elements = list(permutations(range(5)))
    for (a, _, b, _), y in zip(data.x_train[::97], data.y_train[::97], strict=True):
        assert elements[y] == tuple(elements[a][i] for i in elements[b])
    assert len(data.y_train) == len(data.y_val) == 7200
