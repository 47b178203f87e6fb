"""Checkpoints: a run's state at an epoch, in files that are whole or refused, and where they lie: a
folder of this machine or one shared by machines, or an object store.

A file is a version line, the sha256 of the rest, and an .npz archive (never pickled) of the state
with a JSON header. It appears under its name only when complete: on disk by a rename, in an object
store because that is how it writes objects. The last two of a run are kept, so that a corrupt one
costs one interval and not the run.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from groktime.service.errors import CheckpointError, ConfigurationError
from groktime.service.spec import RunSpec
from groktime.workers.engines import State


class Folder(Protocol):
    """The few things that are done with checkpoint files."""

    def read(self, name: str) -> bytes:
        """What the file holds; OSError where it cannot be read."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """All of the content under its name, durable when this returns."""
        ...

    def names(self, folder: str) -> list[str]:
        """Last parts of the names directly in this folder; none where it is not there."""
        ...

    def delete(self, name: str) -> None:
        """Forget the file, or the folder with everything in it, if it is there."""
        ...


def open_folder(where: Path | str) -> Folder:
    """A path's folder, or what a URL such as s3://bucket/folder names."""
    return ObjectFolder(where) if isinstance(where, str) and "://" in where else DiskFolder(where)


class DiskFolder:
    """A folder of a file system, which machines may share."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def __str__(self) -> str:
        return str(self.path)

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        path = self.path / name
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)  # nobody else's, if made here
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def names(self, folder: str) -> list[str]:
        try:
            return [entry.name for entry in (self.path / folder).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def delete(self, name: str) -> None:
        path = self.path / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


class ObjectFolder:
    """A folder of an object store, by the fsspec package of its kind (s3fs, gcsfs, adlfs)."""

    def __init__(self, url: str) -> None:
        import fsspec  # type: ignore[import-untyped]

        self._url = url
        try:
            found: tuple[Any, str] = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError) as problem:
            raise ConfigurationError(f"GROKTIME_CHECKPOINTS = {url!r}: {problem}") from problem
        self._files, self._path = found

    def __str__(self) -> str:
        return self._url

    def _at(self, name: str) -> str:
        return f"{self._path.rstrip('/')}/{name}"

    def read(self, name: str) -> bytes:
        content: bytes = self._files.cat_file(self._at(name))
        return content

    def write(self, name: str, content: bytes) -> None:
        path = self._at(name)
        # Where there are folders at all they must be there first.
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(path, content)

    def names(self, folder: str) -> list[str]:
        try:
            found = self._files.ls(self._at(folder), detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [path.rstrip("/").rpartition("/")[2] for path in found]

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.rm(self._at(name), recursive=True)


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
