"""/docs: the API's own description, readable without a network."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse

from api.problems import ApiError

STATIC = Path(__file__).parent.parent / "static"
ASSETS = {
    "docs.js": STATIC / "docs.js",
    "swagger-ui.css": STATIC / "swagger_ui" / "swagger-ui.css",
    "swagger-ui-bundle.js": STATIC / "swagger_ui" / "swagger-ui-bundle.js",
}
# Swagger UI sets style attributes and shows its icons as data.
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def docs() -> FileResponse:
    return FileResponse(STATIC / "docs.html", headers={"Content-Security-Policy": CSP})


@router.get("/docs/assets/{name}")
async def docs_asset(name: str) -> FileResponse:
    if name not in ASSETS:
        raise ApiError(404, f"there is no {name!r} here", accepted=sorted(ASSETS))
    return FileResponse(ASSETS[name], headers={"Cache-Control": "public, max-age=86400"})
