"""Fixtures shared by all tests live in tests/fixtures, one module per real part."""

from __future__ import annotations

import signal

# A shell starts background jobs with Ctrl-C ignored, and so would every process started here be.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = [
    "fixtures.cluster",
    "fixtures.commands",
    "fixtures.database",
    "fixtures.seeded",
    "fixtures.http",
]
