"""The dashboard: one page at every view's address, and its files."""

from __future__ import annotations

import re

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

from api.problems import ApiError
from dashboard.page import CSP, STATIC_DIR, VIEWS, page, version

router = APIRouter(include_in_schema=False)


def _page() -> HTMLResponse:
    return HTMLResponse(
        page(), headers={"Content-Security-Policy": CSP, "Cache-Control": "no-cache"}
    )


@router.get("/")
async def index() -> HTMLResponse:
    return _page()


@router.get("/view/{name}")
async def view(name: str) -> HTMLResponse:
    if name not in VIEWS:
        raise ApiError(404, f"there is no view {name!r}", parameter="name", accepted=VIEWS)
    return _page()


_files = StaticFiles(directory=STATIC_DIR)
_VERSIONED = re.compile(r"v-([0-9a-f]{12})/")


@router.get("/static/{path:path}")
async def static(request: Request, path: str) -> Response:
    """A file of the dashboard, or 304; nothing outside its folder."""
    if "\x00" in path:
        raise ApiError(404, "there is no such file")
    asked = _VERSIONED.match(path)
    file = path[asked.end() :] if asked else path
    response = await _files.get_response(file, request.scope)
    # Under its version a file never changes. A page from before an update gets the new files.
    lasting = asked is not None and asked[1] == version()
    kept = "public, max-age=31536000, immutable" if lasting else "no-cache"
    response.headers["Cache-Control"] = kept
    return response
