"""Put first on PYTHONPATH, makes the wall clock of a process wrong by CHAOS_CLOCK_SKEW seconds."""

import os
import time

_skew = int(os.environ.get("CHAOS_CLOCK_SKEW", "0"))
if _skew:
    _time, _time_ns = time.time, time.time_ns
    time.time = lambda: _time() + _skew
    time.time_ns = lambda: _time_ns() + _skew * 1_000_000_000
