"""The commands; heavy packages are imported only when one runs."""

from __future__ import annotations


def complete_suite(incomplete: str) -> list[str]:
    """Shipped suites that begin so, each also with -released once it is named."""
    from groktime.service.suites.loader import RELEASED, shipped_suites

    names = [name for name in shipped_suites() if name.startswith(incomplete)]
    released = [name + RELEASED for name in shipped_suites()]
    return names + [name for name in released if incomplete and name.startswith(incomplete)]
