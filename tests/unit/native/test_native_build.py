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

from groktime.service.errors import ConfigurationError
from groktime.service.settings import get_settings
from groktime.service.spec import ModularData
from groktime.workers.engines import choose_engine
from groktime.workers.native import NativeStack
from groktime.workers.native.engine import (
    SOURCES,
    Library,
    build,
    exposure,
    find_compiler,
    safe_folder,
    unavailable,
)

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
        "from pathlib import Path; import sys; from groktime.workers.native.engine import build; "
        "from groktime.workers.native.engine import Library; "
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


PLANTED = b"what somebody else left here"


@pytest.fixture(autouse=True)
def _folders_looked_at_afresh() -> Iterator[None]:
    safe_folder.cache_clear()
    yield
    safe_folder.cache_clear()


@pytest.mark.parametrize(("mode", "who"), [(0o770, "group"), (0o707, "everybody")])
@pytest.mark.parametrize("depth", [0, 2], ids=["the folder itself", "one above it"])
def test_a_library_is_not_loaded_from_where_others_may_write(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    mode: int,
    who: str,
    depth: int,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = tmp_path / "open" / "home" / "native"
    folder.mkdir(parents=True)
    trusted = build(["-O0"], folder)
    trusted.path.write_bytes(PLANTED)
    (folder, *folder.parents)[depth].chmod(mode)
    safe_folder.cache_clear()
    made = build(["-O0"], folder)
    assert not made.path.is_relative_to(folder)
    assert made.path.parent.stat().st_mode & 0o777 == 0o700
    assert made.path.read_bytes() != PLANTED
    assert sorted(Library(made).permutation(1, 1, 5)) == [0, 1, 2, 3, 4]
    assert f"can be written by {who}" in caplog.text


def test_a_folder_under_one_where_only_owners_may_rename_is_safe(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "mine").mkdir(parents=True)
    shared.chmod(0o1777)
    assert exposure(shared / "mine") is None
    assert exposure(shared) is not None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_what_another_user_owns_is_neither_loaded_nor_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = tmp_path / "own"
    planted = build(["-O0"], own).path
    planted.write_bytes(PLANTED)
    os.chown(planted, 12345, 12345)
    assert build(["-O0"], own).path.read_bytes() != PLANTED
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    # The private folder's name can be guessed: one that somebody else made first is not used.
    guessed = tmp_path / f"groktime-native-{os.getuid()}"
    guessed.mkdir()
    os.chown(guessed, 12345, 12345)
    chosen = safe_folder(theirs)
    assert chosen not in (theirs, guessed)
    assert chosen.stat().st_uid == 0
