"""What the API mounts: one page for every view, its static files and the policy it runs under."""

from __future__ import annotations

import gzip
import hashlib
import posixpath
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
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


def page() -> str:
    """The HTML of `/` and of every view; its files are under `/static/v-VERSION/`."""
    return _page(version())


@lru_cache(maxsize=1)
def _page(current: str) -> str:
    html = (STATIC_DIR / "index.html").read_text(encoding="utf-8")
    return html.replace('"/static/', f'"/static/v-{current}/')


# Tells V8 to compile all functions of a script beside the page's thread, while the page is read;
# else each is read again when it is called first. Other browsers see a comment.
COMPILE_ALL = "//# allFunctionsCalledOnLoad"
SCRIPT = "page.js"  # what the page runs: all modules in one file, so that they travel at once
IMPORT = re.compile(
    r'^import (\w+|\{[^}]*\}) from "(\.[^"]+)"(?: with \{ type: "json" \})?;$', re.MULTILINE
)
LATER = re.compile(r"\bimport\(`\./(views/\$\{view\}\.js)`\)")
EXPORT = re.compile(r"^export ((?:async )?(?:const|function|class) (\w+))", re.MULTILINE)


def joined() -> str:
    """app.js, every view and all that they import as one module, each in a block of its own.

    Twenty small files wait for each other and for the six connections that a browser opens.
    Modules import by name and do not import each other in a circle (a test holds it).
    """
    views = [path.relative_to(STATIC_DIR).as_posix() for path in STATIC_DIR.glob("views/*.js")]
    parts = [COMPILE_ALL, "const modules = {};"]
    for name in _in_order([*sorted(views), "app.js"]):
        text = (STATIC_DIR / name).read_text(encoding="utf-8")
        if name.endswith(".json"):
            parts.append(f'modules["{name}"] = {text.strip()};')
            continue
        names = [found for _, found in EXPORT.findall(text)]
        text = IMPORT.sub(partial(_taken, name), text)
        text = LATER.sub(r"modules[`\1`]", EXPORT.sub(r"\1", text))
        parts.append(f'{{ // {name}\n{text}modules["{name}"] = {{ {", ".join(names)} }};\n}}')
    return "\n".join(parts) + "\n"


def _taken(module: str, found: re.Match[str]) -> str:
    return f'const {found[1]} = modules["{_beside(module, found[2])}"];'


def _beside(module: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(module), name))


def _in_order(modules: Iterable[str]) -> list[str]:
    """These modules and all that they import, each after what it imports itself."""
    found: dict[str, None] = {}

    def take(module: str) -> None:
        if module in found:
            return
        if not module.endswith(".json"):
            text = (STATIC_DIR / module).read_text(encoding="utf-8")
            for _, name in IMPORT.findall(text):
                take(_beside(module, name))
        found[module] = None

    for module in modules:
        take(module)
    return list(found)


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
    files = {path.relative_to(STATIC_DIR).as_posix(): path.read_bytes() for path in _paths()}
    files[SCRIPT] = joined().encode()
    return {name: _static_file(name, body) for name, body in files.items()}


def _static_file(name: str, body: bytes) -> StaticFile:
    suffix = posixpath.splitext(name)[1]
    gzipped = None if suffix == ".woff2" else gzip.compress(body, 6, mtime=0)
    if gzipped is not None and len(gzipped) >= len(body):
        gzipped = None
    media_type = MEDIA_TYPES.get(suffix, "text/plain; charset=utf-8")
    return StaticFile(body, gzipped, media_type, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
