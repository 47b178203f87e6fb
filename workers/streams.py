"""Random streams keyed by what they are for, never by a global generator.

A key is a 64-bit word chained from the run's seed, a purpose and a position (epoch, step,
layer). Whoever holds the key can make the stream's i-th word without making those before it,
so a run draws the same numbers alone, in any stack, in any order and after a resume, and no
generator state needs saving. The native engine computes the same words in C.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

_MASK64 = 0xFFFF_FFFF_FFFF_FFFF
_GOLDEN = 0x9E37_79B9_7F4A_7C15


class Purpose(IntEnum):
    """What a stream is for; the numbers are part of every result and never change.

    In positions epochs count from 1, as in a curve; steps within the epoch and layers from 0.
    """

    SPLIT = 1  # which examples train
    INPUTS = 2  # inputs of random-label sets
    LABELS = 3  # labels of random-label sets, and the permutation of shuffled ones
    INIT = 4  # initial weights, by (tensor, layer)
    SHUFFLE = 5  # order of examples, by epoch
    DROPOUT = 6  # masks of the FFN hidden, by (epoch, step, layer)
    PROJECTION_DROPOUT = 7  # masks of the released head projection, by (epoch, step, layer)


def mix64(word: int) -> int:
    """The splitmix64 step: a bijection of 64-bit words that changes about half the bits."""
    word = (word + _GOLDEN) & _MASK64
    word = ((word ^ (word >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK64
    word = ((word ^ (word >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK64
    return word ^ (word >> 31)


def stream_key(seed: int, purpose: Purpose, *position: int) -> int:
    """The key of a stream: a chain of mix64 over seed, purpose and position."""
    key = mix64(seed)
    for part in (int(purpose), *position):
        key = mix64(key ^ part)
    return key


def words(key: int, count: int) -> NDArray[np.uint64]:
    """The stream's first `count` 64-bit words: word i is mix64(key + i·golden)."""
    with np.errstate(over="ignore"):
        state = np.uint64(key) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return state ^ (state >> np.uint64(31))


def integers(key: int, count: int, below: int) -> NDArray[np.int64]:
    """Uniform integers in [0, below); the bias of the remainder is under below / 2⁶⁴."""
    return (words(key, count) % np.uint64(below)).astype(np.int64)


def uniforms(key: int, count: int) -> NDArray[np.float64]:
    """Uniform numbers in (0, 1), 53 bits each."""
    return ((words(key, count) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def normals(key: int, count: int) -> NDArray[np.float64]:
    """Standard normal numbers by the inverse distribution function."""
    values: NDArray[np.float64] = ndtri(uniforms(key, count))
    return values


def permutation(key: int, count: int) -> NDArray[np.int64]:
    """A permutation of range(count): indices sorted by 31 random bits, ties by index.

    The sorted words are (bits << 32) | index, all different, so that any sorting algorithm on
    any device gives the same order.
    """
    keyed = (words(key, count) >> np.uint64(33)) << np.uint64(32)
    keyed |= np.arange(count, dtype=np.uint64)
    keyed.sort()
    return (keyed & np.uint64(0xFFFF_FFFF)).astype(np.int64)


def dropout_threshold(rate: float) -> int:
    """A 16-bit lane below this number is dropped."""
    return round(rate * 65536)


def dropout_scale(rate: float) -> float:
    """What kept elements are multiplied by: exact for the rate that 16 bits can express."""
    return 65536.0 / (65536.0 - dropout_threshold(rate))


def mix32(word: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """A 32-bit finaliser: xor-shifts and two odd multipliers."""
    word = (word ^ (word >> np.uint32(16))) * np.uint32(0x7FEB_352D)
    word = (word ^ (word >> np.uint32(15))) * np.uint32(0x846C_A68B)
    return word ^ (word >> np.uint32(16))


def dropout_lanes(key: int, first: int, count: int) -> NDArray[np.uint16]:
    """16-bit lanes of elements first .. first + count - 1 of a dropout stream (first is even).

    Element e takes the low (e even) or high (e odd) half of word e // 2, which is
    mix32(mix32((e // 2) ^ low half of the key) + high half of the key). An element's index is
    (example in batch · 4 + position) · hidden + unit, whichever positions are computed; an MLP
    has one layer 0, whose hidden units count as the last position's. The released head
    projection counts in units of its width instead of hidden.
    """
    low, high = np.uint32(key & 0xFFFF_FFFF), np.uint32(key >> 32)
    counter = np.arange(first // 2, (first + count + 1) // 2, dtype=np.uint32)
    with np.errstate(over="ignore"):
        word = mix32(mix32(counter ^ low) + high)
    lanes = np.empty(2 * len(word), dtype=np.uint16)
    lanes[0::2] = word & np.uint32(0xFFFF)
    lanes[1::2] = word >> np.uint32(16)
    return lanes[:count]
