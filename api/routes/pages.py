"""The dashboard: one page at every view's address, and its files."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse

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


@router.get("/static/{path:path}")
async def static(path: str) -> FileResponse:
    """A file of the dashboard; nothing outside its folder."""
    if "\x00" in path:
        raise ApiError(404, "there is no such file")
    file = (STATIC_DIR / path).resolve()
    if not file.is_relative_to(STATIC_DIR.resolve()) or not file.is_file():
        raise ApiError(404, "there is no such file")
    return FileResponse(file, headers={"Cache-Control": _lifetime(file)})


def _lifetime(file: Path) -> str:
    """Vendored files never change under one version; the page's own are asked about."""
    return "public, max-age=86400" if "vendor" in file.parts else "no-cache"
