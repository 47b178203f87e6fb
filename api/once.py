"""A parameter that has one value is given once."""

from __future__ import annotations

from collections import Counter

from fastapi import Request

from api.parameters import is_list, query_fields
from api.problems import ApiError


async def given_once(request: Request) -> None:
    """Refuse a parameter that is given twice but has one value: none of them is the right one."""
    counted = Counter(name for name, _ in request.query_params.multi_items())
    if not counted or max(counted.values()) == 1:
        return
    fields = query_fields(request)
    for name, times in counted.items():
        if times > 1 and name in fields and not is_list(fields[name].annotation):
            raise ApiError(
                422,
                f"{name}: given {times} times, but takes one value",
                parameter=name,
                value=request.query_params.getlist(name),
                accepted="one value",
            )
