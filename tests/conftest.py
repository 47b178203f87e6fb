"""Fixtures shared by all tests live in tests/fixtures, one module per real part."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from fixtures.environment import header
from hypothesis import HealthCheck, settings

# Benchmarks are measured by tests, too, but are no part of what is installed.
sys.path.insert(0, str(Path(__file__).parent.parent))

# A shell starts background jobs with Ctrl-C ignored, and so would every process started here be.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no reason to fail: time is measured in benchmarks/.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

pytest_plugins = [
    "fixtures.cluster",
    "fixtures.commands",
    "fixtures.database",
    "fixtures.seeded",
    "fixtures.demo_state",
    "fixtures.http",
]


def pytest_report_header() -> str:
    """What rounding depends on: a number that differs on another machine is looked for here."""
    return header()
