"""Checkpoints are whole or refused, and the last two are kept."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worker_runs import make_run

from groktime.service.errors import CheckpointError, ConfigurationError
from groktime.workers.checkpoints import CheckpointStore, CheckpointWriter, checkpoint_bytes
from groktime.workers.model import initial_state

KEY, PRINT = "ab" * 32, "engine 1"
STATE = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "m.w": np.zeros((2, 3), np.float32)}


def saved(folder: Path, *epochs: int) -> CheckpointStore:
    store = CheckpointStore(folder)
    for epoch in epochs:
        store.save(KEY, epoch, PRINT, STATE, {"seconds": 1.5, "epoch": epoch})
    return store


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.checkpoint"))


def test_what_is_loaded_is_what_was_saved(tmp_path: Path) -> None:
    found = saved(tmp_path, 7).load(KEY, 7)
    assert found.fingerprint == PRINT
    assert found.extra == {"seconds": 1.5, "epoch": 7}
    assert set(found.state) == set(STATE)
    assert all(found.state[name].tobytes() == STATE[name].tobytes() for name in STATE)


def test_the_last_two_are_kept_newest_first(tmp_path: Path) -> None:
    store = saved(tmp_path, 5, 10, 15, 20)
    assert store.epochs(KEY, PRINT) == [20, 15]
    assert len(files(tmp_path)) == 2


def test_checkpoints_of_another_engine_are_not_offered(tmp_path: Path) -> None:
    store = saved(tmp_path, 5)
    assert store.epochs(KEY, "engine 2") == []
    assert store.epochs("cd" * 32, PRINT) == []


def test_a_run_that_started_over_keeps_its_own_beside_later_ones_it_cannot_use(
    tmp_path: Path,
) -> None:
    store = saved(tmp_path, 90, 100)
    for file in files(tmp_path):
        file.write_bytes(file.read_bytes()[:-1])
    store.save(KEY, 5, PRINT, STATE, {})
    assert store.epochs(KEY, PRINT) == [5]
    store.save(KEY, 10, "engine 2", STATE, {})
    store.save(KEY, 7, PRINT, STATE, {})
    assert store.epochs(KEY, PRINT) == [7, 5]


def test_a_late_writer_does_not_take_away_what_a_later_owner_saved(tmp_path: Path) -> None:
    store = saved(tmp_path, 20, 30)
    store.save(KEY, 10, PRINT, STATE, {})
    assert store.epochs(KEY, PRINT)[:2] == [30, 20]


@given(st.data())
@settings(max_examples=40)
def test_a_damaged_file_is_refused_and_the_one_before_is_used(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("checkpoints")
    store = saved(folder, 5, 10)
    newest = files(folder)[-1]
    content = bytearray(newest.read_bytes())
    if data.draw(st.booleans(), label="truncate"):
        content = content[: data.draw(st.integers(0, len(content) - 1), label="length")]
    else:
        place = data.draw(st.integers(0, len(content) - 1), label="place")
        content[place] ^= data.draw(st.integers(1, 255), label="bits")
    newest.write_bytes(content)
    with pytest.raises(CheckpointError):
        store.load(KEY, 10)
    assert store.epochs(KEY, PRINT) == [5]


def test_a_file_under_another_runs_name_is_refused(tmp_path: Path) -> None:
    store = saved(tmp_path, 5)
    files(tmp_path)[0].rename(files(tmp_path)[0].with_name("00000006.checkpoint"))
    with pytest.raises(CheckpointError, match="another run or epoch"):
        store.load(KEY, 6)


def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = saved(tmp_path, 5)

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("groktime.workers.checkpoints.os.fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        store.save(KEY, 10, PRINT, STATE, {})
    monkeypatch.undo()
    assert store.epochs(KEY, PRINT) == [5]
    assert [path.name for path in files(tmp_path)[0].parent.iterdir()] == ["00000005.checkpoint"]


def test_a_finished_run_leaves_nothing(tmp_path: Path) -> None:
    store = saved(tmp_path, 5)
    store.delete(KEY)
    store.delete(KEY)
    assert files(tmp_path) == []


def test_what_was_handed_over_is_written_in_order_and_waited_for(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    writer = CheckpointWriter(store)
    for epoch in (5, 10):
        writer.save(KEY, epoch, PRINT, STATE, {}, lambda: True)
    writer.save("cd" * 32, 5, PRINT, STATE, {}, lambda: True)
    writer.delete("cd" * 32)
    writer.close()
    assert store.epochs(KEY, PRINT) == [10, 5]
    assert store.epochs("cd" * 32, PRINT) == []


def test_a_run_that_is_lost_before_its_turn_is_not_written(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    writer = CheckpointWriter(store)
    writer.save(KEY, 5, PRINT, STATE, {}, lambda: False)
    writer.close()
    assert files(tmp_path) == []


def test_an_error_of_writing_reaches_training(tmp_path: Path) -> None:
    (tmp_path / KEY[:2]).touch()  # a file where the run's folder would be
    writer = CheckpointWriter(CheckpointStore(tmp_path))
    writer.save(KEY, 5, PRINT, STATE, {}, lambda: True)
    with pytest.raises(OSError, match=KEY[:2]):
        writer.close()


@pytest.mark.parametrize("scheme", ["file://{}/checkpoints", "memory://{}"])
def test_an_object_store_by_its_url_does_what_a_folder_does(tmp_path: Path, scheme: str) -> None:
    store = CheckpointStore(scheme.format(tmp_path))
    assert store.keys() == set()
    assert store.epochs(KEY, PRINT) == []
    for epoch in (5, 10, 15):
        store.save(KEY, epoch, PRINT, STATE, {"epoch": epoch})
    assert store.epochs(KEY, PRINT) == [15, 10]
    assert store.load(KEY, 15).state["w"].tobytes() == STATE["w"].tobytes()
    assert store.keys() == {KEY}
    with pytest.raises(CheckpointError, match="cannot be read"):
        store.load(KEY, 5)
    again = CheckpointStore(scheme.format(tmp_path))
    assert again.load(KEY, 10).extra == {"epoch": 10}
    again.delete(KEY)
    assert store.epochs(KEY, PRINT) == []
    assert store.keys() == set()
    again.delete(KEY)


def test_a_corrupt_object_is_refused(tmp_path: Path) -> None:
    store = CheckpointStore(f"file://{tmp_path}")
    store.save(KEY, 5, PRINT, STATE, {})
    (file,) = files(tmp_path)
    file.write_bytes(file.read_bytes()[:-1])
    assert store.epochs(KEY, PRINT) == []


def test_an_object_store_that_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="GROKTIME_CHECKPOINTS = 'nowhere://bucket'"):
        CheckpointStore("nowhere://bucket")


def test_the_size_that_is_told_is_that_of_the_files(tmp_path: Path) -> None:
    run = make_run(width=64)
    store = CheckpointStore(tmp_path)
    for epoch in (1, 2, 3):
        store.save(run.key, epoch, PRINT, initial_state(run), {})
    there = sum(file.stat().st_size for file in files(tmp_path))
    told = checkpoint_bytes(run)
    assert told <= there < 1.1 * told + 10_000


def test_the_folder_is_nobody_elses_when_it_is_made_here(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        saved(tmp_path / "checkpoints", 1)
    finally:
        os.umask(before)
    assert (tmp_path / "checkpoints").stat().st_mode & 0o077 == 0
