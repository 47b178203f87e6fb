"""The native engine is tested on a library compiled once for the whole session."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The plain network and the small runs that every engine is tested with.
sys.path.append(str(Path(__file__).parent.parent / "workers"))

from groktime.service.settings import get_settings
from groktime.workers.native.engine import library, unavailable


@pytest.fixture(autouse=True, scope="session")
def _native_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compile into a folder of this session, whatever this machine has cached."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GROKTIME_HOME", str(tmp_path_factory.mktemp("native")))
        for cached in (get_settings, unavailable, library):
            cached.cache_clear()
        yield
    for cached in (get_settings, unavailable, library):
        cached.cache_clear()
