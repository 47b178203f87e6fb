"""A database as large as the whole paper, filled by the server itself from real suites' specs.

The curves are straight climbs, so that first passages can be written down without a search and
are those of the curve; only sizes and times mean anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy import Engine, text

from groktime.db.suites import Registered, register_suite
from groktime.service.spec import LADDER
from groktime.service.suites import Suite, load_suite

PAPER = (
    "central",
    "weight_decay",
    "learning_rate",
    "init_scale",
    "train_fraction",
    "depth",
    "addition",
    "multiplication",
    "subtraction",
    "dropout",
    "heads",
    "architecture",
    "permutations",
)
QUICK = ("mini", "central-two-cores")
PAPER_ROWS, QUICK_ROWS = 20_000_000, 300_000

# Epochs differ between runs by a fixed hash of their number; the mean is what is asked for.
CLOSE_RUNS = f"""
WITH lengths AS (
    SELECT id, 1 + (hashint4(id)::bigint & 1023) * (:mean - 1) / 512 AS epochs FROM runs
), passages AS (
    SELECT r.id, l.epochs,
        ARRAY(SELECT ((k * n_train + 999) / 1000 * l.epochs + n_train - 1) / n_train
            FROM unnest(:ladder) k) AS train,
        ARRAY(SELECT ((k * n_val + 999) / 1000 * l.epochs + n_val - 1) / nullif(n_val, 0)
            FROM unnest(:ladder) k) AS val
    FROM runs r JOIN lengths l USING (id)
)
UPDATE runs r SET state = 'done', stopped_by = 'threshold', attempt = 1, last_epoch = p.epochs,
    closed_at = now(), first_online = p.train, first_eval = p.train, first_val = p.val,
    final_train_correct = n_train, final_val_correct = nullif(n_val, 0), seconds = 60,
    bits = CASE WHEN kind = 'capacity' THEN least(k_mem, 2.16 * params) END,
    device = 'cpu', engine = 'none', fingerprint = 'benchmark'
FROM passages p WHERE p.id = r.id AND {len(LADDER)} = cardinality(p.train)
"""

FILL_CURVE = """
INSERT INTO curve
SELECT r.id, e, 5.0 / e, n_train::bigint * e / r.last_epoch, n_train::bigint * e / r.last_epoch,
    CASE WHEN n_val > 0 THEN 6.0 / e END,
    CASE WHEN n_val > 0 THEN n_val::bigint * e / r.last_epoch END,
    CASE WHEN kind = 'capacity' THEN k_mem * e / r.last_epoch END, 10 + 0.001 * e
FROM runs r, generate_series(1, r.last_epoch) e
WHERE r.id BETWEEN :first AND :last
"""

RUNS_A_STEP = 2_000


def register(engine: Engine, suite: Suite) -> Registered:
    """Register a suite with the runs it inherits."""
    taken = [member.spec for entry in suite.inherited for member in entry.members]
    spec = suite.file.model_dump(mode="json", by_alias=True)
    return register_suite(engine, suite.name, spec, suite.digest, suite.runs(), taken)


def fill(
    engine: Engine,
    names: tuple[str, ...],
    curve_rows: int,
    tell: Callable[[str], None] = lambda words: None,
) -> tuple[int, int]:
    """Register the suites and close all their runs; returns numbers of runs and curve rows.

    `tell` hears how far it is and how many seconds are left.
    """
    for name in names:
        tell(f"registering {name}")
        register(engine, load_suite(name))
    with engine.begin() as connection:
        runs, last = connection.execute(text("SELECT count(*), max(id) FROM runs")).one()
        mean = max(2, round(curve_rows / runs))
        connection.execute(text(CLOSE_RUNS), {"mean": mean, "ladder": list(LADDER)})
    started, written = time.monotonic(), 0
    for first in range(1, last + 1, RUNS_A_STEP):
        step = {"first": first, "last": first + RUNS_A_STEP - 1}
        with engine.begin() as connection:
            written += connection.execute(text(FILL_CURVE), step).rowcount
        done = min(1.0, step["last"] / last)
        left = (time.monotonic() - started) * (1 - done) / done
        tell(f"{written:,} epochs written ({done:.0%}), {left:.0f} s left")
    tell("vacuuming")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))
        rows = connection.scalar(text("SELECT count(*) FROM curve"))
    assert rows is not None
    return runs, rows
