"""Datasets: the examples a run trains and validates on, from its data spec and seed alone."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from groktime.service.spec import (
    TOKENS,
    ModularData,
    PermutationData,
    RandomData,
    RunSpec,
    ShuffledData,
)
from groktime.workers.streams import Purpose, integers, permutation, stream_key

Tokens = NDArray[np.int64]


@dataclass(frozen=True)
class Dataset:
    """Inputs [n, 4] and labels [n] of the training and the validation set."""

    x_train: Tokens
    y_train: Tokens
    x_val: Tokens
    y_val: Tokens


def make_dataset(spec: RunSpec) -> Dataset:
    """The run's examples; the same seed gives the same split at every width."""
    data, seed = spec.data, spec.seed
    if isinstance(data, RandomData):
        return _random_labels(data, seed)
    x, y = _table(data)
    train = _split(data, seed)
    held_out = np.setdiff1d(np.arange(len(y)), train)
    if isinstance(data, ShuffledData):
        order = permutation(stream_key(seed, Purpose.LABELS), len(train))
        return Dataset(x[train], y[train][order], x[:0], y[:0])
    return Dataset(x[train], y[train], x[held_out], y[held_out])


def _random_labels(data: RandomData, seed: int) -> Dataset:
    vocabulary = data.prime + 2
    inputs = integers(stream_key(seed, Purpose.INPUTS), data.n * TOKENS, vocabulary)
    labels = integers(stream_key(seed, Purpose.LABELS), data.n, vocabulary)
    x = inputs.reshape(data.n, TOKENS)
    return Dataset(x, labels, x[:0], labels[:0])


def _table(data: ModularData | ShuffledData | PermutationData) -> tuple[Tokens, Tokens]:
    """All pairs, a-major, as [a, operator, b, equals] with their answers."""
    rows, columns = data.shape
    first_b = data.prime - columns  # division starts at b = 1
    a, b = np.divmod(np.arange(rows * columns), columns)
    b = b + first_b
    x = np.empty((len(a), TOKENS), dtype=np.int64)
    x[:, 0], x[:, 1], x[:, 2], x[:, 3] = a, data.prime, b, data.prime + 1
    if isinstance(data, PermutationData):
        return x, _compose(a, b)
    return x, _modular(a, b, data.prime, data.operation)


def _modular(a: Tokens, b: Tokens, prime: int, operation: str) -> Tokens:
    if operation == "/":
        inverse = np.array([pow(value, prime - 2, prime) for value in range(prime)])
        quotient: Tokens = np.mod(a * inverse[b], prime)
        return quotient
    answers: dict[str, Tokens] = {"+": a + b, "-": a - b, "*": a * b}
    return np.mod(answers[operation], prime)


def _compose(a: Tokens, b: Tokens) -> Tokens:
    """Index of a∘b, b applied first, among the permutations of five letters in lexical order."""
    elements = np.array(list(permutations(range(5))))  # [120, 5]
    composed = np.take_along_axis(elements[a], elements[b], axis=1)
    place = 5 ** np.arange(4, -1, -1)
    index: Tokens = np.searchsorted(elements @ place, composed @ place)
    return index


def _split(data: ModularData | ShuffledData | PermutationData, seed: int) -> Tokens:
    """Sorted indices of the training examples in the a-major table."""
    _, columns = data.shape
    if data.split == "random":
        order = permutation(stream_key(seed, Purpose.SPLIT), data.n_full)
        return np.sort(order[: data.n_train])
    b = np.arange(data.n_full) % columns
    sequential = data.split == "sequential"
    return np.flatnonzero(b < int(data.train_fraction * columns) if sequential else b % 2 == 0)
