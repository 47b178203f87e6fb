"""The streams: fixed numbers for ever, the same words on every device."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from groktime.workers.operators import (
    dropout_counters,
    dropout_keep,
    permutations,
    stream_keys,
)
from groktime.workers.streams import (
    Purpose,
    dropout_lanes,
    dropout_scale,
    dropout_threshold,
    integers,
    mix64,
    normals,
    permutation,
    stream_key,
    uniforms,
    words,
)

seeds = st.integers(min_value=0, max_value=2**63 - 1)


def test_the_mixer_is_splitmix64() -> None:
    # First output of the published generator seeded with zero.
    assert mix64(0) == 0xE220A8397B1DCDAF
    assert words(0, 1)[0] == 0xE220A8397B1DCDAF


@given(seeds, st.integers(0, 10_000), st.integers(0, 500), st.integers(0, 20))
def test_keys_made_in_bulk_equal_those_made_one_by_one(
    seed: int, epoch: int, step: int, layer: int
) -> None:
    bulk = stream_keys([seed, seed + 1], Purpose.DROPOUT, [epoch, epoch], [[step]], [[[layer]]])
    assert int(bulk.view(np.uint64)[0, 0, 0]) == stream_key(
        seed, Purpose.DROPOUT, epoch, step, layer
    )


@given(seeds, st.integers(1, 300))
def test_a_device_shuffles_as_the_host_does(seed: int, count: int) -> None:
    keys = stream_keys([seed], Purpose.SHUFFLE, 3)
    on_device = permutations(torch.from_numpy(keys), count)[0].numpy()
    expected = permutation(stream_key(seed, Purpose.SHUFFLE, 3), count)
    assert np.array_equal(on_device, expected)
    assert np.array_equal(np.sort(expected), np.arange(count))


@given(seeds, st.floats(0, 0.99), st.integers(1, 9), st.integers(1, 16))
def test_a_device_drops_the_elements_the_host_drops(
    seed: int, rate: float, examples: int, half: int
) -> None:
    units, positions = 2 * half, [1, 3]
    key = stream_keys([seed], Purpose.DROPOUT, 1, 2, 0)
    threshold = torch.tensor(dropout_threshold(rate) - 32768.0).view(1, 1, 1, 1)
    counters = dropout_counters(examples, positions, units)
    keep = dropout_keep(torch.from_numpy(key)[:, None], counters, threshold)[0].numpy()
    lanes = dropout_lanes(stream_key(seed, Purpose.DROPOUT, 1, 2, 0), 0, examples * 4 * units)
    expected = lanes.reshape(examples, 4, units)[:, positions] >= dropout_threshold(rate)
    assert np.array_equal(keep, expected.astype(np.float32))


def test_a_stream_can_be_entered_anywhere() -> None:
    key = stream_key(5, Purpose.DROPOUT, 1, 0, 0)
    assert np.array_equal(dropout_lanes(key, 0, 100)[40:], dropout_lanes(key, 40, 60))


def test_draws_have_the_distributions_they_claim() -> None:
    key = stream_key(7, Purpose.INIT, 1, 0)
    count = 200_000
    assert abs(uniforms(key, count).mean() - 0.5) < 0.003
    assert abs(normals(key, count).std() - 1) < 0.01
    assert np.bincount(integers(key, count, 10)).min() > 0.095 * count
    dropped = (dropout_lanes(key, 0, count) < dropout_threshold(0.2)).mean()
    assert abs(dropped - 0.2) < 0.005
    assert abs(dropout_scale(0.2) * 0.8 - 1) < 1e-4


def test_purposes_and_positions_give_different_streams() -> None:
    keys = {
        stream_key(1, purpose, epoch, layer)
        for purpose in Purpose
        for epoch in range(4)
        for layer in range(4)
    }
    assert len(keys) == len(Purpose) * 16
