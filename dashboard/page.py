"""What the API mounts: one page for every view, its static files and the policy it runs under."""

from __future__ import annotations

import hashlib
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


def page() -> str:
    """The HTML of `/` and of every `/view/NAME`; its files are under `/static/v-VERSION/`."""
    return _page(version())


@lru_cache(maxsize=1)
def _page(current: str) -> str:
    html = (STATIC_DIR / "index.html").read_text(encoding="utf-8")
    return html.replace('"/static/', f'"/static/v-{current}/')


def version() -> str:
    """A hash of all static files: what a browser has under this name it need not ask for again."""
    files = sorted(path for path in STATIC_DIR.rglob("*") if path.is_file())
    return _hash(tuple((path, path.stat().st_mtime_ns) for path in files))


@lru_cache(maxsize=1)
def _hash(files: tuple[tuple[Path, int], ...]) -> str:
    digest = hashlib.sha256()
    for path, _ in files:
        content = hashlib.sha256(path.read_bytes()).digest()
        digest.update(path.relative_to(STATIC_DIR).as_posix().encode() + b"\0" + content)
    return digest.hexdigest()[:12]
