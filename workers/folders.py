"""Where checkpoints lie: a folder of this machine or one shared by machines, or an object store.

Names are relative and separated by slashes. A file is there whole or not at all: on disk by a
rename, in an object store because that is how it writes objects.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Protocol

from groktime.service.errors import ConfigurationError


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
