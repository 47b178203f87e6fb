"""Who trains a run: claims with a lease and an attempt number, by the database's clock alone.

pending ─claim→ running ─close→ done | failed | set_aside ─claim→ running
                running ─lease over→ stale ─claim→ running (attempt + 1)
                running ─worker gives it back→ pending
A worker's own clock is never asked, so clocks that differ between machines do no harm. The
attempt number fences every write: an attempt that lost its run cannot change it any more. What
made an attempt (machine, code, versions) is stored beside it.

A run set aside is censored at its last epoch and may be claimed by whoever wants it whole. Its
summary and curve stay until the new attempt has come further than `set_aside_epoch`.
"""

from __future__ import annotations

import json
import platform
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, text

from groktime.db.suites import RAISE_REVISIONS, spec_from_json
from groktime.service.spec import RunSpec

NODE_DIED = "its node died"  # the reason of an attempt whose machine ended

PACKAGES = ("groktime", "torch", "numpy", "ray", "sqlalchemy", "psycopg2-binary")


@dataclass(frozen=True)
class Provenance:
    """The machine and the code of a worker."""

    host: str
    git_commit: str | None  # None: not run from a checkout
    git_dirty: bool | None
    versions: dict[str, str]


@dataclass(frozen=True)
class Trainer:
    """What will train the runs of a claim; an attempt that crashes has been made with it."""

    engine: str
    device: str
    fingerprint: str


@lru_cache(maxsize=1)
def provenance() -> Provenance:
    """This process's provenance, found out once."""
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no") if commit else None
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return Provenance(
        host=socket.gethostname(),
        git_commit=commit,
        git_dirty=None if changes is None else bool(changes),
        versions=versions,
    )


def _git(*arguments: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


LOCK_CLAIMABLE = """
SELECT id, spec, attempt, last_epoch FROM runs
WHERE id = ANY(:ids) AND (state IN ('pending', 'stale', 'set_aside')
    OR state = 'running' AND lease_until < clock_timestamp())
ORDER BY id FOR UPDATE SKIP LOCKED
"""

END_ATTEMPTS = """
UPDATE attempts a SET state = :state, reason = :reason, ended_at = clock_timestamp()
FROM runs r WHERE r.id = a.run_id AND r.id = ANY(:ids) AND a.attempt = r.attempt
    AND a.state = 'running'
"""

TAKE = """
UPDATE runs r SET state = 'running', attempt = r.attempt + 1, owner = :owner,
    lease_until = clock_timestamp() + make_interval(secs => :lease), last_epoch = t.resume,
    closed_at = NULL
FROM unnest(CAST(:ids AS int[]), CAST(:resumes AS int[])) AS t(id, resume) WHERE r.id = t.id
"""

FORGET_BEYOND = """
DELETE FROM curve c
USING unnest(CAST(:ids AS int[]), CAST(:resumes AS int[])) AS t(id, resume) JOIN runs r USING (id)
WHERE c.run_id = t.id AND c.epoch > greatest(t.resume, r.set_aside_epoch)
"""

INSERT_ATTEMPTS = """
INSERT INTO attempts (run_id, attempt, owner, host, resume_epoch, engine, device, fingerprint,
    git_commit, git_dirty, versions)
SELECT r.id, r.attempt, :owner, :host, r.last_epoch, :engine, :device, :fingerprint,
    :commit, :dirty, CAST(:versions AS jsonb)
FROM runs r WHERE r.id = ANY(:ids)
"""

# In the driver's own style: recorders renew over a plain connection.
RENEW = """
UPDATE runs r SET lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
FROM unnest(%(ids)s::int[], %(attempts)s::int[]) AS t(id, attempt)
WHERE r.id = t.id AND r.attempt = t.attempt AND r.state = 'running'
RETURNING r.id
"""

LOCK_OWNED = """
SELECT r.id FROM runs r
JOIN unnest(CAST(:ids AS int[]), CAST(:attempts AS int[])) AS t(id, attempt)
    ON r.id = t.id AND r.attempt = t.attempt
WHERE r.state = 'running' ORDER BY r.id FOR UPDATE OF r
"""

LOCK_EXPIRED = """
SELECT id FROM runs WHERE state = 'running' AND lease_until < clock_timestamp()
ORDER BY id FOR UPDATE SKIP LOCKED
"""

LOCK_OF_OWNER = """
SELECT id FROM runs WHERE state = 'running' AND starts_with(owner, :prefix)
ORDER BY id FOR UPDATE
"""

LOCK_FREE = """
SELECT id FROM runs WHERE id = ANY(:ids) AND state IN ('pending', 'stale')
ORDER BY id FOR UPDATE
"""

DEATHS = """
SELECT run_id, count(*) AS deaths FROM attempts
WHERE run_id = ANY(:ids) AND reason = :reason GROUP BY run_id
"""

LEAVE = "UPDATE runs SET state = :state, owner = NULL, lease_until = NULL WHERE id = ANY(:ids)"

FORGET_UNREACHED = """
DELETE FROM curve c USING runs r WHERE r.id = ANY(:ids) AND c.run_id = r.id
    AND r.set_aside_epoch IS NOT NULL AND c.epoch > r.last_epoch
"""

WITHOUT_SUMMARY = """stopped_by = NULL,
    first_online = NULL, first_eval = NULL, first_val = NULL, final_train_loss = NULL,
    final_train_correct = NULL, final_train_correct_eval = NULL, final_val_loss = NULL,
    final_val_correct = NULL, final_weight_norm = NULL, best_train_loss = NULL, bits = NULL,
    seconds = NULL, device = NULL, engine = NULL, fingerprint = NULL, set_aside_epoch = NULL,
    thinned = false"""

FAIL = f"""
UPDATE runs SET state = 'failed', reason = :reason, owner = NULL, lease_until = NULL,
    closed_at = clock_timestamp(), {WITHOUT_SUMMARY}
WHERE id = ANY(:ids)
"""

REOPEN = f"""
UPDATE runs SET state = 'pending', reason = NULL, closed_at = NULL, {WITHOUT_SUMMARY}
WHERE id = ANY(:ids) AND state = 'failed' RETURNING id
"""


@dataclass(frozen=True)
class Claim:
    """A run that this worker owns for this attempt."""

    run_id: int
    attempt: int
    spec: RunSpec
    resume_epoch: int  # curve rows up to here exist, and the chosen checkpoint is of this epoch


def claim(
    engine: Engine,
    run_ids: Sequence[int],
    owner: str,
    lease_seconds: float,
    checkpoints: Mapping[int, Sequence[int]] | None = None,
    trainer: Trainer | None = None,
) -> list[Claim]:
    """Take the runs that are free, in the order asked; those another worker has are left out.

    `checkpoints` gives per run the epochs that training could resume from; the latest one whose
    epochs are all recorded is chosen, and what the curve holds beyond it is deleted. `trainer` is
    kept with the attempts from now on; without it they say so only when they are closed.
    """
    maker = provenance()
    with engine.begin() as connection:
        free = connection.execute(text(LOCK_CLAIMABLE), {"ids": list(run_ids)}).all()
        if not free:
            return []
        ids = [row.id for row in free]
        known = checkpoints or {}
        resumes = [
            max((epoch for epoch in known.get(row.id, ()) if epoch <= row.last_epoch), default=0)
            for row in free
        ]
        # An attempt whose lease ended without anybody noticing ends here.
        end_attempts(connection, ids, "stale")
        connection.execute(
            text(TAKE), {"ids": ids, "resumes": resumes, "owner": owner, "lease": lease_seconds}
        )
        connection.execute(text(FORGET_BEYOND), {"ids": ids, "resumes": resumes})
        connection.execute(
            text(INSERT_ATTEMPTS),
            {
                "ids": ids,
                "owner": owner,
                "host": maker.host,
                "engine": trainer and trainer.engine,
                "device": trainer and trainer.device,
                "fingerprint": trainer and trainer.fingerprint,
                "commit": maker.git_commit,
                "dirty": maker.git_dirty,
                "versions": json.dumps(maker.versions),
            },
        )
    claims = {
        row.id: Claim(row.id, row.attempt + 1, spec_from_json(row.spec), resume)
        for row, resume in zip(free, resumes, strict=True)
    }
    return [claims[run_id] for run_id in run_ids if run_id in claims]


def renew(connection: Any, claims: Sequence[Claim], lease_seconds: float) -> set[int]:
    """Extend the leases and commit; returns the ids of the runs still owned.

    `connection` is psycopg2's.
    """
    with connection.cursor() as cursor:
        cursor.execute(RENEW, {**_fences(claims), "lease": lease_seconds})
        kept = {row[0] for row in cursor.fetchall()}
    connection.commit()
    return kept


def release(engine: Engine, claims: Sequence[Claim], reason: str) -> set[int]:
    """Give runs back unfinished, for a reason that their attempts keep.

    What was recorded stays for whoever resumes. Returns the ids of the runs that were owned.
    """
    with engine.begin() as connection:
        ids = list(connection.scalars(text(LOCK_OWNED), _fences(claims)))
        end_attempts(connection, ids, "released", reason)
        connection.execute(text(LEAVE), {"ids": ids, "state": "pending"})
    return set(ids)


def expire(engine: Engine) -> list[int]:
    """Mark runs whose lease is over as stale: their worker is gone or frozen."""
    with engine.begin() as connection:
        ids = list(connection.scalars(text(LOCK_EXPIRED)))
        end_attempts(connection, ids, "stale")
        connection.execute(text(LEAVE), {"ids": ids, "state": "stale"})
    return ids


def reopen(engine: Engine, run_ids: Sequence[int]) -> list[int]:
    """Make failed runs pending again."""
    with engine.begin() as connection:
        ids = list(connection.scalars(text(REOPEN), {"ids": list(run_ids)}))
        raise_revisions(connection, ids)
    return ids


def end_attempts(
    connection: Connection, run_ids: Sequence[int], state: str, reason: str | None = None
) -> None:
    """End the attempts that still run of these runs."""
    values = {"ids": list(run_ids), "state": state, "reason": reason}
    connection.execute(text(END_ATTEMPTS), values)


def raise_revisions(connection: Connection, run_ids: Sequence[int]) -> None:
    """Tell suites and listeners that these runs changed; the last statement of a transaction."""
    if run_ids:
        connection.exec_driver_sql(RAISE_REVISIONS, {"runs": list(run_ids)})


def revoke_leases(engine: Engine, owner_prefix: str, reason: str | None = None) -> list[int]:
    """Make the runs held by owners whose names begin so stale at once; returns their ids.

    The attempts that end by it keep the reason.

    Only whoever started a worker and saw it end may do so. Should it live on after all, behind a
    broken network, its next write is fenced like any other late one.
    """
    with engine.begin() as connection:
        ids = list(connection.scalars(text(LOCK_OF_OWNER), {"prefix": owner_prefix}))
        end_attempts(connection, ids, "stale", reason)
        connection.execute(text(LEAVE), {"ids": ids, "state": "stale"})
    return ids


def node_deaths(engine: Engine, run_ids: Sequence[int]) -> dict[int, int]:
    """How many attempts of each run ended because their machine did."""
    with engine.connect() as connection:
        found = connection.execute(text(DEATHS), {"ids": list(run_ids), "reason": NODE_DIED})
        return {row.run_id: row.deaths for row in found}


def fail_runs(engine: Engine, run_ids: Sequence[int], reason: str) -> list[int]:
    """Close runs that nobody holds and that no attempt could finish; returns their ids."""
    with engine.begin() as connection:
        ids = list(connection.scalars(text(LOCK_FREE), {"ids": list(run_ids)}))
        connection.execute(text(FORGET_UNREACHED), {"ids": ids})
        connection.execute(text(FAIL), {"ids": ids, "reason": reason})
        raise_revisions(connection, ids)
    return ids


def _fences(claims: Sequence[Claim]) -> dict[str, list[int]]:
    return {"ids": [c.run_id for c in claims], "attempts": [c.attempt for c in claims]}
