"""A figure as a page or a picture."""

from __future__ import annotations

import html
import json
import logging
import shutil
import threading
from typing import Any

from groktime.api.problems import ApiError

WIDTH, HEIGHT, SCALE = 1000, 600, 2
SECONDS = 25
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

PAGE = """<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>{title}</title>
  </head>
  <body>
    <div id="chart"></div>
    <p>{caption}</p>
    <script type="application/json" id="figure">{figure}</script>
    <script src="/static/vendor/plotly/plotly.min.js"></script>
    <script src="/charts/assets/chart.js"></script>
  </body>
</html>
"""

log = logging.getLogger("groktime.api.pictures")

# One browser at a time: each takes some hundred megabytes.
_one_browser = threading.Lock()


def as_page(figure: dict[str, Any]) -> bytes:
    """A page that draws the figure with the server's own Plotly and no inline script."""
    meta = figure["layout"].get("meta", {})
    # A data block is not run, but it must not end early: no tag can begin inside it.
    data = json.dumps(figure, allow_nan=False).replace("<", "\\u003c")
    page = PAGE.format(
        title=html.escape(str(meta.get("title", "groktime"))),
        caption=html.escape(str(meta.get("caption", ""))),
        figure=data,
    )
    return page.encode()


def as_picture(figure: dict[str, Any], form: str) -> bytes:
    """PNG or SVG by kaleido, which drives a browser; 501 where there is none."""
    if not any(shutil.which(name) for name in BROWSERS):
        raise _not_here(form, "Chromium or Chrome on the server, which has none")
    try:
        import kaleido
    except ImportError as missing:
        raise _not_here(form, "the images extra: pip install 'groktime[images]'") from missing
    options = {"format": form, "width": WIDTH, "height": HEIGHT, "scale": SCALE}
    # Charts hold no formulas, and MathJax would be fetched from the network.
    browser = {"mathjax": False, "timeout": SECONDS}
    with _one_browser:
        try:
            picture: bytes = kaleido.calc_fig_sync(figure, opts=options, kopts=browser)
        except (RuntimeError, ValueError, OSError) as failed:
            log.warning("a picture could not be made: %s", failed)
            raise _not_here(form, "a browser that starts; the log has the reason") from failed
    return picture


def _not_here(form: str, needs: str) -> ApiError:
    return ApiError(
        501,
        f"format: {form} needs {needs}",
        parameter="format",
        value=form,
        accepted=["json", "html"],
    )
