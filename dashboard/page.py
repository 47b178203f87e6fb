"""What the API mounts: one page for every view, its static files and the policy it runs under."""

from __future__ import annotations

import gzip
import hashlib
import posixpath
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

STATIC_DIR = Path(__file__).parent / "static"

# Every view is the same page at its own address: `/` is the first one, `/view/NAME` each.
VIEWS = ("delay", "capacity", "memorisation", "onset", "runs", "sweeps")

# Scripts and data come from here only, and nothing is evaluated. Plotly writes style attributes
# and one style element, so inline styles are let through; pictures of charts pass through blobs.
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


def page(view: str = "start") -> str:
    """The HTML of `/` and of `/view/NAME`; its files are under `/static/v-VERSION/`.

    It names every script that the view needs, so that all of them travel at once.
    """
    return _page(version(), view)


@lru_cache(maxsize=len(VIEWS) + 2)
def _page(current: str, view: str) -> str:
    html = (STATIC_DIR / "index.html").read_text(encoding="utf-8")
    begin = ["app.js", *([f"views/{view}.js"] if view in ("start", *VIEWS) else [])]
    named = [name for name in imported(begin) if name != "app.js"]  # which the page runs
    early = [f'  <link rel="modulepreload" href="/static/{name}">\n' for name in named]
    html = html.replace("</head>", f"{''.join(early)}</head>")
    return html.replace('"/static/', f'"/static/v-{current}/')


IMPORT = re.compile(r'^(?:import|export|\}) .*?from "(\.[^"]+)";$', re.MULTILINE)


def imported(modules: Iterable[str]) -> list[str]:
    """These scripts of the page and all that they import, in the order of their names."""
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            text = (STATIC_DIR / module).read_text(encoding="utf-8")
            beside = posixpath.dirname(module)
            waiting += [
                posixpath.normpath(posixpath.join(beside, name)) for name in IMPORT.findall(text)
            ]
    return sorted(found)


def version() -> str:
    """A hash of all static files: what a browser has under this name it need not ask for again.

    The folder is looked at once a second, so that a page of twenty files costs one look.
    """
    return _version(int(time.monotonic()))


@lru_cache(maxsize=1)
def _version(_second: int) -> str:
    return _hash(tuple((path, path.stat().st_mtime_ns) for path in _paths()))


def _paths() -> list[Path]:
    return sorted(path for path in STATIC_DIR.rglob("*") if path.is_file())


@lru_cache(maxsize=1)
def _hash(files: tuple[tuple[Path, int], ...]) -> str:
    digest = hashlib.sha256()
    for path, _ in files:
        content = hashlib.sha256(path.read_bytes()).digest()
        digest.update(path.relative_to(STATIC_DIR).as_posix().encode() + b"\0" + content)
    return digest.hexdigest()[:12]


@dataclass(frozen=True)
class StaticFile:
    """One file of the page as it is sent: plain, and compressed where that makes it smaller."""

    body: bytes
    gzipped: bytes | None
    media_type: str
    etag: str


MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",  # compressed in itself
}


def static_files() -> Mapping[str, StaticFile]:
    """All files of the page by their path in its folder, read and compressed once a version."""
    return _static_files(version())


@lru_cache(maxsize=1)
def _static_files(_version: str) -> Mapping[str, StaticFile]:
    return {path.relative_to(STATIC_DIR).as_posix(): _static_file(path) for path in _paths()}


def _static_file(path: Path) -> StaticFile:
    body = path.read_bytes()
    gzipped = None if path.suffix == ".woff2" else gzip.compress(body, 6, mtime=0)
    if gzipped is not None and len(gzipped) >= len(body):
        gzipped = None
    media_type = MEDIA_TYPES.get(path.suffix, "text/plain; charset=utf-8")
    return StaticFile(body, gzipped, media_type, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
