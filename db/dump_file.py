"""The file that carries a suite between databases: one line of text, then a zip archive.

groktime-dump 1 sha256=<of everything after this line>
The archive holds manifest.json (suite, how it was made, counts), runs.jsonl (one run a line with
its attempts) and curve.parquet (rows of all runs, which it names by their line, counted from 0).
The whole file is checked before anything in it is believed. Nothing in it is ever executed.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from service.errors import DumpError

FORMAT = 1
MANIFEST, RUNS, CURVE = "manifest.json", "runs.jsonl", "curve.parquet"
FIRST_LINE = re.compile(rb"groktime-dump (\d{1,9}) sha256=([0-9a-f]{64})\n")
FIRST_LINE_LIMIT = 128
BLOCK = 1 << 20


def seal(archive: Path, target: Path) -> None:
    """Put the checksummed first line before the archive; the target appears when complete."""
    digest = hashlib.sha256()
    with open(archive, "rb") as source:
        while block := source.read(BLOCK):
            digest.update(block)
    # A name of its own: two dumps into one file each write theirs whole, the later one stays.
    partial = target.with_name(f".{target.name}.{uuid4().hex}.partial")
    try:
        with open(partial, "wb") as sink, open(archive, "rb") as source:
            sink.write(f"groktime-dump {FORMAT} sha256={digest.hexdigest()}\n".encode())
            while block := source.read(BLOCK):
                sink.write(block)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The archive of a dump whose checksum is right; everything else is refused."""
    with damage_is_refused(path), open(path, "rb") as file:
        first = file.readline(FIRST_LINE_LIMIT)
        match = FIRST_LINE.fullmatch(first)
        if match is None:
            raise DumpError(f"{path} is not a dump of groktime")
        if int(match[1]) > FORMAT:
            raise DumpError(
                f"{path} has format {int(match[1])}, newer than {FORMAT}, the latest known here: "
                "install the groktime that wrote it, or a later one"
            )
        digest = hashlib.sha256()
        while block := file.read(BLOCK):
            digest.update(block)
        if digest.hexdigest() != match[2].decode():
            raise DumpError(f"{path} is corrupt: its checksum is wrong; copy it again")
        with zipfile.ZipFile(file) as archive:
            yield archive


@contextlib.contextmanager
def damage_is_refused(path: Path) -> Iterator[None]:
    """Turn whatever a damaged file makes its readers say into one line that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise DumpError(f"{path} does not exist") from None
    except (
        OSError,
        ValueError,  # bad JSON, UTF-8 and pydantic's refusals
        KeyError,
        TypeError,
        EOFError,
        NotImplementedError,  # an archive of an unknown kind
        RuntimeError,  # an encrypted archive
        zipfile.BadZipFile,
        zlib.error,
        pa.ArrowException,
    ) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DumpError(f"{path} cannot be read as a dump: {said}") from error
