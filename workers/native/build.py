"""Compiles the C sources once for this processor and keeps the library.

The file's name carries a hash of the sources, the compiler, its flags and the processor, and the
library is moved into place in one step: workers that start at once each find either nothing or
a whole library, and at worst compile the same one twice.

A library runs with all rights of whoever loads it. So it is loaded only from a folder that nobody
but its user and root can have written into, up to the root of the file system.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from groktime.service.errors import ConfigurationError
from groktime.service.settings import get_settings
from groktime.workers.devices import cpu_name

log = logging.getLogger(__name__)

SOURCES = Path(__file__).parent
# No -ffast-math: sums keep their order, so that a curve depends on nothing but its run.
FLAGS = (
    "-std=gnu11",
    "-O3",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
)


@dataclass(frozen=True)
class Build:
    """A compiled library and what it was made with."""

    path: Path
    compiler: str  # version line
    flags: tuple[str, ...]


def source_files() -> list[Path]:
    """The C sources; engine.c includes all the others."""
    return sorted(path for path in SOURCES.iterdir() if path.suffix in (".c", ".h"))


def native_flags() -> tuple[str, ...]:
    """Use every instruction this processor has."""
    arm = platform.machine().lower() in ("aarch64", "arm64")
    return ("-mcpu=native",) if arm else ("-march=native",)


def find_compiler() -> str | None:
    """$CC, or the first of cc, gcc and clang on the path."""
    names = [os.environ["CC"]] if os.environ.get("CC") else ["cc", "gcc", "clang"]
    return next((path for name in names if (path := shutil.which(name))), None)


def build(flags: Sequence[str] | None = None, folder: Path | None = None) -> Build:
    """The library for these extra flags (default: this processor's), compiled if not there yet."""
    compiler = find_compiler()
    if compiler is None:
        raise ConfigurationError("no C compiler (cc, gcc or clang) on this machine")
    folder = safe_folder(folder or get_settings().home / "native")
    chosen = FLAGS + tuple(native_flags() if flags is None else flags)
    version = _run([compiler, "--version"]).splitlines()[0]
    target = folder / f"engine-{_key(compiler, version, chosen)}.so"
    if not target.exists() or _writers(target):
        log.info("compiling the native engine with %s into %s (once, seconds)", compiler, target)
        started = time.monotonic()
        _compile(compiler, chosen, target)
        log.info("compiled the native engine in %.1f s", time.monotonic() - started)
    return Build(target, version, chosen)


@lru_cache(maxsize=8)
def safe_folder(wanted: Path) -> Path:
    """The folder, or one of this user's own where others could put a library into the first."""
    wanted = wanted.absolute().resolve()
    exposed = exposure(wanted)
    if exposed is None:
        return wanted
    private = Path(tempfile.gettempdir()).resolve() / f"groktime-native-{os.getuid()}"
    try:
        private.mkdir(mode=0o700, exist_ok=True)
        if private.is_symlink() or exposure(private):
            private = Path(tempfile.mkdtemp(prefix="groktime-native-")).resolve()
    except OSError as error:
        raise ConfigurationError(f"cannot write {private}: {error.strerror}") from error
    log.warning("%s: the native engine is kept in %s instead of %s", exposed, private, wanted)
    return private


def exposure(folder: Path) -> str | None:
    """Why others could put a file into the folder or replace it, or None; by owners and modes.

    Of its ancestors one that anybody may write into is harmless where only owners may rename
    (/tmp); what does not exist yet will be made by us.
    """
    for place in (folder, *folder.parents):
        if place.exists():
            writers = _writers(place, sticky=place != folder)
            if writers:
                return f"{place} can be written by {writers}"
    return None


def _writers(path: Path, *, sticky: bool = False) -> str | None:
    """Who else can write there: its owner, its group or all, or nobody."""
    found = path.lstat()
    if found.st_uid not in (0, os.getuid()):
        return f"its owner, user {found.st_uid}"
    if sticky and found.st_mode & stat.S_ISVTX:
        return None
    if found.st_mode & stat.S_IWOTH:
        return "everybody"
    return f"group {found.st_gid}" if found.st_mode & stat.S_IWGRP else None


@lru_cache(maxsize=1)
def unavailable() -> str | None:
    """Why the native engine cannot be used on this machine, or None; said once in the log."""
    try:
        build()
    except ConfigurationError as error:
        log.warning("the native engine is not available, PyTorch trains instead: %s", error)
        return str(error)
    return None


def _key(compiler: str, version: str, flags: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for path in source_files():
        digest.update(path.name.encode() + path.read_bytes())
    for part in (compiler, version, *flags, platform.machine(), cpu_name(), _cpu_features()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:20]


def _cpu_features() -> str:
    """Instruction sets as the system lists them: one model name may hide some of them."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return ""
    lines = info.read_text().splitlines()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _compile(compiler: str, flags: Sequence[str], target: Path) -> None:
    try:
        for folder in reversed((target.parent, *target.parent.parents)):
            folder.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            made = Path(scratch) / target.name
            _run([compiler, *flags, str(SOURCES / "engine.c"), "-o", str(made), "-lm"])
            made.chmod(0o755)
            made.replace(target)
    except OSError as error:
        raise ConfigurationError(f"cannot write {target}: {error.strerror}") from error


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or "no message").splitlines()[0]
        raise ConfigurationError(f"{command[0]} failed: {said}")
    return done.stdout
