"""What the recorded runs were computed with: changed only on purpose, never by moving code."""

from __future__ import annotations

import torch

from groktime.workers.engines import COMPUTES_AS, files_hash
from groktime.workers.native import NativeStack
from groktime.workers.native.engine import source_files
from groktime.workers.torch_engine import SOURCES, torch_fingerprint


def test_the_native_engine_is_the_one_that_trained_the_recordings() -> None:
    assert "source ee182ee03bd4" in NativeStack([]).fingerprint


def test_the_torch_engine_is_the_one_that_trained_the_recordings() -> None:
    assert "source 1a24d32a8208" in torch_fingerprint(torch.device("cpu"))


def test_only_the_sources_of_today_are_said_to_compute_as_earlier_ones() -> None:
    native = tuple(f"native/{path.name}" for path in source_files())
    assert set(COMPUTES_AS) == {files_hash(native), files_hash(SOURCES)}
