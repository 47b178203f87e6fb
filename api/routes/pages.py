"""The dashboard: one page at every view's address, and its files."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

from api.problems import ApiError
from dashboard.page import CSP, STATIC_DIR, VIEWS, page

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


@router.get("/static/{path:path}")
async def static(request: Request, path: str) -> Response:
    """A file of the dashboard, or 304; nothing outside its folder."""
    if "\x00" in path:
        raise ApiError(404, "there is no such file")
    response = await _files.get_response(path, request.scope)
    # Vendored files never change under one version; the page's own are asked about.
    vendored = path.startswith("vendor/")
    response.headers["Cache-Control"] = "public, max-age=86400" if vendored else "no-cache"
    return response
