"""Checkpoints: a run's state at an epoch, in files that are whole or refused.

A file is a version line, the sha256 of the rest, and an .npz archive (never pickled) of the state
with a JSON header. It appears under its name only when complete and on disk. The last two of a
run are kept, so that a corrupt one costs one interval and not the run.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groktime.service.errors import CheckpointError
from groktime.service.spec import RunSpec
from groktime.workers.engines import State
from groktime.workers.folders import open_folder

VERSION = b"groktime checkpoint 1\n"
_HEADER = "header"  # name of the JSON member; no parameter is called so
_KEPT = 2
_SUFFIX = ".checkpoint"


@dataclass(frozen=True)
class Checkpoint:
    """A run after `epoch` epochs; `extra` is what the driver needs besides the engine's state."""

    key: str
    epoch: int
    fingerprint: str
    state: State
    extra: Mapping[str, Any]


class CheckpointStore:
    """Checkpoints of many runs in one folder, or in an object store where that is a URL."""

    def __init__(self, folder: Path | str) -> None:
        self._files = open_folder(folder)

    def epochs(self, key: str, fingerprint: str) -> list[int]:
        """Epochs of the run's usable checkpoints, newest first: intact and of this engine."""
        usable = []
        for epoch in self._present(key):
            try:
                found = self.load(key, epoch)
            except CheckpointError:
                continue
            if found.fingerprint == fingerprint:
                usable.append(epoch)
        return usable

    def load(self, key: str, epoch: int) -> Checkpoint:
        """Read one checkpoint; a corrupt, truncated or foreign file is a CheckpointError."""
        name = _name(key, epoch)
        path = f"{self._files}/{name}"
        try:
            content = self._files.read(name)
        except OSError as error:
            why = error.strerror or str(error)
            raise CheckpointError(f"checkpoint {path} cannot be read: {why}") from error
        version, rest = content[: len(VERSION)], content[len(VERSION) :]
        if version != VERSION:
            raise CheckpointError(f"checkpoint {path} is not of this version")
        digest, _, payload = rest.partition(b"\n")
        if hashlib.sha256(payload).hexdigest().encode() != digest:
            raise CheckpointError(f"checkpoint {path} is corrupt: its checksum differs")
        try:
            with np.load(io.BytesIO(payload), allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            header = json.loads(arrays.pop(_HEADER).tobytes())
            found = Checkpoint(
                header["key"], header["epoch"], header["fingerprint"], arrays, header["extra"]
            )
        except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise CheckpointError(f"checkpoint {path} holds no state: {error}") from error
        if (found.key, found.epoch) != (key, epoch):
            raise CheckpointError(f"checkpoint {path} belongs to another run or epoch")
        return found

    def save(
        self, key: str, epoch: int, fingerprint: str, state: State, extra: Mapping[str, Any]
    ) -> None:
        """Publish atomically, then drop all but the last two, and what training will not meet.

        Later ones that cannot be used, damaged or of another engine, would otherwise count as
        the last two of a run that had to start over, and leave it without any.
        """
        header = {"key": key, "epoch": epoch, "fingerprint": fingerprint, "extra": dict(extra)}
        members: dict[str, NDArray[Any]] = {
            **state,
            _HEADER: np.frombuffer(json.dumps(header).encode(), dtype=np.uint8),
        }
        archive = io.BytesIO()
        np.savez(archive, allow_pickle=False, **members)
        payload = archive.getvalue()
        digest = hashlib.sha256(payload).hexdigest().encode()
        self._files.write(_name(key, epoch), b"".join([VERSION, digest, b"\n", payload]))
        present = self._present(key)
        later = [other for other in present if other > epoch]
        usable = set(self.epochs(key, fingerprint)) if later else set()
        outdated = [other for other in present if other <= epoch][_KEPT:]
        for other in [*outdated, *(other for other in later if other not in usable)]:
            self._files.delete(_name(key, other))

    def keys(self) -> set[str]:
        """Runs that have a folder here, be there a checkpoint in it or not."""
        parts = [part for part in self._files.names("") if len(part) == 2]
        return {key for part in parts for key in self._files.names(part)}

    def delete(self, key: str) -> None:
        """Forget the run: it has finished."""
        self._files.delete(_folder(key))

    def _present(self, key: str) -> list[int]:
        """Epochs of the files there, newest first."""
        stems = (
            name.removesuffix(_SUFFIX)
            for name in self._files.names(_folder(key))
            if name.endswith(_SUFFIX)
        )
        return sorted((int(stem) for stem in stems if stem.isdigit()), reverse=True)


def _folder(key: str) -> str:
    return f"{key[:2]}/{key}"


def _name(key: str, epoch: int) -> str:
    return f"{_folder(key)}/{epoch:08d}{_SUFFIX}"


def checkpoint_bytes(spec: RunSpec) -> int:
    """What the checkpoints kept of one run take: its weights and both moments, twice."""
    return _KEPT * 3 * 4 * int(spec.params)


class CheckpointWriter:
    """Writes to a store off the training thread, in the order asked; closing waits for all.

    Training hands over copies and goes on. An error of writing is raised at the next call.
    """

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._pending: list[Future[None]] = []

    def save(
        self,
        key: str,
        epoch: int,
        fingerprint: str,
        state: State,
        extra: Mapping[str, Any],
        wanted: Callable[[], bool],
    ) -> None:
        """Save, unless it is no longer wanted when its turn has come."""

        def write() -> None:
            if wanted():
                self._store.save(key, epoch, fingerprint, state, extra)

        self._submit(write)

    def delete(self, key: str) -> None:
        """Forget the run, after what was to be saved of it."""
        self._submit(lambda: self._store.delete(key))

    @property
    def busy(self) -> bool:
        """Whether something handed over is not written yet."""
        self._raise_errors()
        return bool(self._pending)

    def close(self) -> None:
        """Wait until everything is written."""
        self._thread.shutdown(wait=True)
        self._raise_errors()

    def _submit(self, work: Callable[[], None]) -> None:
        self._raise_errors()
        self._pending.append(self._thread.submit(work))

    def _raise_errors(self) -> None:
        done = [future for future in self._pending if future.done()]
        self._pending = [future for future in self._pending if future not in done]
        for future in done:
            future.result()
