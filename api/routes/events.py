"""/events: progress of running sweeps as it happens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import Field

from api.events import EventHub
from api.head import no_stream, only_head
from api.queries import StrictQuery, SuiteName
from api.tokens import MayRead

router = APIRouter(tags=["progress"], dependencies=[MayRead])


class EventsQuery(StrictQuery):
    """Which suite is listened to."""

    suite: SuiteName | None = Field(None, description="only this suite; default: all")


@router.get(
    "/events",
    summary="Progress of running sweeps, as server-sent events",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {
                "text/event-stream": {
                    "schema": {"type": "string"},
                    "example": 'id: 1.42\nevent: progress\ndata: {"suite": "demo", "revision": 42, '
                    '"runs": 30, "states": {"pending": 4, "running": 2, "stale": 0, "done": 24, '
                    '"failed": 0}, "epochs": 18230}\n\n',
                }
            }
        }
    },
)
async def events(
    request: Request,
    query: Annotated[EventsQuery, Query()],
    last_event_id: Annotated[str | None, Header(max_length=4096)] = None,
) -> StreamingResponse:
    """First the suites the client has not seen at their revision, then every change.

    The stream never ends by itself; a client that returns with Last-Event-ID goes on from there.
    """
    hub: EventHub = request.app.state.events
    if only_head(request):
        stream: AsyncIterator[str] | AsyncIterator[bytes] = no_stream()
    else:
        stream = await hub.stream(query.suite, last_event_id)
    return StreamingResponse(
        stream,
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )
