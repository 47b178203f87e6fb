"""Building: once, safely, portably, and with a word when it cannot be done."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from native_gradients import largest_deviation
from worker_runs import make_run, random_labels

from service.errors import ConfigurationError
from service.settings import get_settings
from service.spec import ModularData
from workers.engines import choose_engine
from workers.native import NativeStack
from workers.native.build import SOURCES, build, find_compiler, unavailable
from workers.native.library import Library

ROOT = SOURCES.parent.parent


def test_a_library_is_compiled_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        first = build(["-O0"], tmp_path)
        assert "compiling the native engine" in caplog.text
        caplog.clear()
        made = first.path.stat().st_mtime_ns
        second = build(["-O0"], tmp_path)
    assert second == first
    assert first.path.stat().st_mtime_ns == made
    assert caplog.text == ""
    assert [path.name for path in tmp_path.iterdir()] == [first.path.name]


def test_other_flags_make_another_library(tmp_path: Path) -> None:
    assert build(["-O0"], tmp_path).path != build(["-O0", "-g"], tmp_path).path


def test_a_build_for_any_processor_is_correct(tmp_path: Path) -> None:
    """Without -march=native the vectors are the narrowest the architecture has."""
    portable = Library(build([], tmp_path))
    for data in (ModularData(prime=23), random_labels(200, 23)):
        spec = make_run(data=data, width=18, depth=3, batch_size=512)
        assert largest_deviation(spec, np.arange(data.n_train), portable) < 1e-5
    ours, theirs = (NativeStack([spec], engine=e).advance(5)[0] for e in (portable, None))
    np.testing.assert_allclose(ours["train_loss"], theirs["train_loss"], rtol=1e-4)


def test_workers_that_start_at_once_all_find_a_whole_library(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; import sys; from workers.native.build import build; "
        "from workers.native.library import Library; "
        "made = build(['-O0'], Path(sys.argv[1])); print(Library(made).permutation(1, 1, 5))"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    workers = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    answers = [worker.communicate(timeout=300)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    assert answers[0] == answers[1] == answers[2] != ""
    assert len(list(tmp_path.iterdir())) == 1


@pytest.fixture
def _asked_afresh() -> Iterator[None]:
    unavailable.cache_clear()
    yield
    unavailable.cache_clear()


@pytest.mark.usefixtures("_asked_afresh")
def test_without_a_compiler_pytorch_trains_and_the_log_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.delenv("CC", raising=False)
    assert find_compiler() is None
    spec = make_run()
    assert choose_engine(spec, "auto", "cpu") == "torch"
    assert choose_engine(spec, "auto", "cpu") == "torch"
    assert [r.levelname for r in caplog.records if "no C compiler" in r.getMessage()] == ["WARNING"]
    with pytest.raises(ConfigurationError, match="no C compiler"):
        choose_engine(spec, "native", "cpu")


def test_a_compiler_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="failed"):
        build(["-fno-such-flag"], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot write"):
        build(["-O0"], tmp_path / "file" / "native")


def test_the_cache_lies_under_the_data_directory() -> None:
    assert build().path.parent == get_settings().home / "native"
