"""What the API mounts: one page for every view, its static files and the policy it runs under."""

from __future__ import annotations

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


@lru_cache(maxsize=1)
def page() -> str:
    """The HTML of `/` and of every `/view/NAME`; it expects its files under `/static/`."""
    return (STATIC_DIR / "index.html").read_text(encoding="utf-8")
