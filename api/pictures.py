"""A figure as a page or a picture."""

from __future__ import annotations

import html
import json
import shutil
import threading
from typing import Any

from api.problems import ApiError

WIDTH, HEIGHT, SCALE = 1000, 600, 2
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
    <script src="/static/vendor/plotly/plotly-strict.min.js"></script>
    <script src="/charts/assets/chart.js"></script>
  </body>
</html>
"""

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
        raise ApiError(
            501,
            f"format: {form} needs Chromium or Chrome on the server, which has none",
            parameter="format",
            value=form,
            accepted=["json", "html"],
        )
    try:
        import kaleido  # noqa: F401
        import plotly.io
    except ImportError as missing:
        raise ApiError(
            501,
            f"format: {form} needs the images extra: pip install groktime[images]",
            parameter="format",
            value=form,
            accepted=["json", "html"],
        ) from missing
    with _one_browser:
        picture: bytes = plotly.io.to_image(
            figure, format=form, width=WIDTH, height=HEIGHT, scale=SCALE, validate=False
        )
    return picture
