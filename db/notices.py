"""What changed, told at once: a suite's revision is raised and listeners are notified.

Listeners (the API's /events) LISTEN on CHANNEL and get small JSON documents
{suite, revision, run, state}; a notice without a state is progress within a run.
"""

from __future__ import annotations

CHANNEL = "groktime"

# Suites are locked in one order, so that closers of runs shared by suites cannot deadlock; it is
# the last statement of a transaction, so that the lock is held for no longer than a commit.
RAISE_REVISIONS = f"""
WITH locked AS (
    SELECT id FROM suites
    WHERE id IN (SELECT suite_id FROM suite_runs WHERE run_id = ANY(%(runs)s))
    ORDER BY id FOR UPDATE
), raised AS (
    UPDATE suites s SET revision = revision + 1, updated_at = clock_timestamp()
    FROM locked WHERE s.id = locked.id
    RETURNING s.id, s.name, s.revision
)
SELECT pg_notify('{CHANNEL}', json_build_object(
    'suite', raised.name, 'revision', raised.revision, 'run', r.id, 'state', r.state)::text)
FROM raised
JOIN suite_runs sr ON sr.suite_id = raised.id AND sr.run_id = ANY(%(runs)s)
JOIN runs r ON r.id = sr.run_id
"""

# Progress changes no revision: answers that count only closed runs stay cached.
NOTIFY_PROGRESS = f"""
SELECT pg_notify('{CHANNEL}', json_build_object(
    'suite', s.name, 'revision', s.revision, 'run', r.id, 'epoch', r.last_epoch)::text)
FROM runs r
JOIN suite_runs sr ON sr.run_id = r.id
JOIN suites s ON s.id = sr.suite_id
WHERE r.id = %(run)s
"""
