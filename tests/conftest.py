"""Fixtures shared by all tests live in tests/fixtures, one module per real part."""

from __future__ import annotations

pytest_plugins = [
    "fixtures.cluster",
    "fixtures.commands",
    "fixtures.database",
    "fixtures.seeded",
    "fixtures.http",
]
