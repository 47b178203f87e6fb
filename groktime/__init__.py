"""When do neural networks grok? The names for users; each is imported when it is first used.

    from groktime import Client

    Client().crossing(prime=113)

The packages behind it lie at the top of the repository and are linked from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groktime.api.app import create_app
    from groktime.api.client import Client
    from groktime.service.spec import RunSpec
    from groktime.service.suites import load_suite

# A client of the API never loads torch, Ray or the database's driver.
_HOMES = {
    "Client": "groktime.api.client",
    "RunSpec": "groktime.service.spec",
    "create_app": "groktime.api.app",
    "load_suite": "groktime.service.suites",
}

__all__ = ["Client", "RunSpec", "create_app", "load_suite"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"groktime has no {name}; it offers {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
