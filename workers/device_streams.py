"""The random streams of workers/streams.py for a whole stack, computed on the training device.

Torch has no unsigned words, so a logical shift is an arithmetic one followed by a mask; products
wrap around the same way. Keys are few and made on the host for a block of epochs at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from groktime.workers.streams import Purpose

_GOLDEN = 0x9E37_79B9_7F4A_7C15


def _signed64(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _mix64(word: NDArray[np.uint64]) -> NDArray[np.uint64]:
    word = word + np.uint64(_GOLDEN)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return word ^ (word >> np.uint64(31))


def stream_keys(seeds: ArrayLike, purpose: Purpose, *position: ArrayLike) -> NDArray[np.int64]:
    """stream_key of seeds and positions broadcast together, as signed words."""
    with np.errstate(over="ignore"):
        key = _mix64(np.asarray(seeds, dtype=np.uint64))
        for part in (int(purpose), *position):
            key = _mix64(key ^ np.asarray(part, dtype=np.uint64))
    return key.view(np.int64)


def permutations(keys: Tensor, count: int) -> Tensor:
    """The permutation of range(count) of each key: [..., count], as streams.permutation."""
    steps = torch.arange(1, count + 1, dtype=torch.int64, device=keys.device)
    state = keys[..., None] + steps * _signed64(_GOLDEN)
    state = _xor_shift64(state, 30) * _signed64(0xBF58_476D_1CE4_E5B9)
    state = _xor_shift64(state, 27) * _signed64(0x94D0_49BB_1331_11EB)
    word = _xor_shift64(state, 31)
    # 31 random bits above the index: every sort gives the same order.
    keyed = (((word >> 33) & 0x7FFF_FFFF) << 32) | (steps - 1)
    return keyed.sort(dim=-1).values & 0xFFFF_FFFF


def _xor_shift64(word: Tensor, shift: int) -> Tensor:
    return word ^ ((word >> shift) & ((1 << (64 - shift)) - 1))


def dropout_counters(examples: int, positions: Sequence[int], units: int) -> Tensor:
    """Word numbers [examples, positions, units / 2] of a dropout stream's elements, int32."""
    row = torch.arange(examples)[:, None, None] * 4 + torch.tensor(positions)[:, None]
    words = row * (units // 2) + torch.arange(units // 2)
    # Counters wrap like the host's 32-bit ones.
    return (words & 0xFFFF_FFFF).to(torch.int32)


def dropout_keep(keys: Tensor, counters: Tensor, thresholds: Tensor) -> Tensor:
    """1.0 where an element is kept and 0.0 where it is dropped.

    keys [..., M, n] for as many blocks of counters, int64; counters [n, ·, units / 2];
    thresholds [M, 1, 1, 1] float (16-bit threshold minus 32768); returns [..., M, n, ·, units].
    """
    blocks = keys[..., None, None]
    low = (blocks & 0xFFFF_FFFF).to(torch.int32)
    high = (blocks >> 32).to(torch.int32)
    word = counters ^ low
    scratch = torch.empty_like(word)
    word = _mix32_(word, scratch).add_(high)
    word = _mix32_(word, scratch)
    # Flipping both sign bits makes unsigned 16-bit lanes ordered as signed ones.
    lanes = word.bitwise_xor_(-0x7FFF_8000).view(torch.int16)
    return lanes.to(torch.float32).ge_(thresholds)


def _mix32_(word: Tensor, scratch: Tensor) -> Tensor:
    """streams.mix32 in place: in cache this is several times cheaper than with fresh memory."""
    _xor_shift32_(word, 16, scratch).mul_(0x7FEB_352D)
    _xor_shift32_(word, 15, scratch).mul_(0x846C_A68B - (1 << 32))
    return _xor_shift32_(word, 16, scratch)


def _xor_shift32_(word: Tensor, shift: int, scratch: Tensor) -> Tensor:
    torch.bitwise_right_shift(word, shift, out=scratch)
    return word.bitwise_xor_(scratch.bitwise_and_((1 << (32 - shift)) - 1))
