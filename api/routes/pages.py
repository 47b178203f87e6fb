"""Pages: the dashboard at every view's address, /docs without a network, and their files."""

from __future__ import annotations

import re
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, HTMLResponse
from fastapi.staticfiles import StaticFiles

from groktime.api.problems import ApiError
from groktime.dashboard.page import CSP, STATIC_DIR, VIEWS, page, version

STATIC = Path(__file__).parent.parent / "static"
ASSETS = {
    "docs.js": STATIC / "docs.js",
    "docs.css": STATIC / "docs.css",
    "swagger-ui.css": STATIC / "swagger_ui" / "swagger-ui.css",
    "swagger-ui-bundle.js": STATIC / "swagger_ui" / "swagger-ui-bundle.js",
}
# Swagger UI sets style attributes and shows its icons as data.
DOCS_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)

router = APIRouter(include_in_schema=False)


def _page(status: int = 200) -> HTMLResponse:
    headers = {"Content-Security-Policy": CSP, "Cache-Control": "no-cache"}
    return HTMLResponse(page(), status_code=status, headers=headers)


@router.get("/")
async def index() -> HTMLResponse:
    return _page()


@router.get("/view/{name}")
async def view(request: Request, name: str) -> HTMLResponse:
    if name in VIEWS:
        return _page()
    if "text/html" in request.headers.get("accept", ""):
        return _page(404)  # which says so, and leads back
    raise ApiError(404, f"there is no view {name!r}", parameter="name", accepted=VIEWS)


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


@router.get("/docs")
async def docs() -> FileResponse:
    return FileResponse(STATIC / "docs.html", headers={"Content-Security-Policy": DOCS_CSP})


@router.get("/docs/assets/{name}")
async def docs_asset(name: str) -> FileResponse:
    if name not in ASSETS:
        raise ApiError(404, f"there is no {name!r} here", accepted=sorted(ASSETS))
    return FileResponse(ASSETS[name], headers={"Cache-Control": "public, max-age=86400"})
