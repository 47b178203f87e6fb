"""The faults. Each breaks one thing in a trial, at the place its name says, and mends it again.

A fault returns the runs and attempts it hit, or None when its moment did not come (the suite
ended first). Places inside a flush, a closing or a checkpoint's write are found from outside:
by locks that stop a worker there, and by the temporary file of a write.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
from chaos.ground import WORKER_CPUS
from chaos.trial import STALLED_SECONDS, Held, Trial
from fixtures.commands import wait_until
from sqlalchemy import text

Hit = frozenset[tuple[int, int]]  # runs and their attempts
Fault = Callable[[Trial, random.Random], Hit | None]

PATIENCE_SECONDS = 300.0  # for a moment to come, on a machine with other work
HOLD_SECONDS = 15.0  # of one lock: those who wait for it may keep the moment from coming
OUTAGE_SECONDS = (0.5, 3.0)
REFUSED_BYTES = (1024, 16 * 1024, 256 * 1024)  # small things of Ray's, rows, a stack's arrays

BLOCKED_COPIES = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
    AND wait_event_type = 'Lock' AND query LIKE 'COPY curve%'
"""
BLOCKED_CLOSINGS = """
SELECT query FROM pg_stat_activity WHERE datname = current_database()
    AND wait_event_type = 'Lock' AND query ~ '^\\s*UPDATE attempts SET state'
"""
LOCK_ATTEMPTS = """
SELECT a.run_id FROM attempts a JOIN runs r ON r.id = a.run_id AND r.attempt = a.attempt
WHERE r.state = 'running' AND r.lease_until > clock_timestamp() ORDER BY 1 FOR UPDATE OF a
"""
DROP_OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = :name AND pid <> pg_backend_pid()
"""


def all_of(held: list[Held]) -> Hit:
    return frozenset((one.run, one.attempt) for one in held)


def of_worker(trial: Trial, pid: int) -> Hit:
    """Runs in the hands of this process."""
    return all_of([held for held in trial.held() if held.pid == pid])


def await_training(trial: Trial, *, epochs: int = 1) -> list[Held]:
    """Runs that have got somewhere; empty when there is nothing left to train."""
    found: list[Held] = []

    def ready() -> bool:
        found[:] = [held for held in trial.held() if held.epoch >= epochs]
        return bool(found) or is_over(trial)

    comes(ready)
    return found


def comes(moment: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> bool:
    """Whether the moment comes: on a slow machine it may not, which is nobody's fault."""
    try:
        wait_until(moment, seconds)
    except AssertionError:
        return False
    return True


def is_over(trial: Trial) -> bool:
    """Whether nothing is being trained, nor going to be without another sweep."""
    if not trial.living():
        return True
    return trial.is_trained()


def pause(rng: random.Random) -> None:
    """Let an outage last."""
    time.sleep(rng.uniform(*OUTAGE_SECONDS))


def end_process(pid: int) -> None:
    """kill -9, until it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(psutil.Error):
        # Not our child: Ray reaps it.
        wait_until(lambda: not _runs(pid), PATIENCE_SECONDS)


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


# Workers.


def kill_worker(trial: Trial, rng: random.Random) -> Hit | None:
    """At whatever it is doing, most likely in the middle of an epoch."""
    held = await_training(trial)
    if not held:
        return None
    time.sleep(rng.uniform(0, 1))  # any moment
    pid = rng.choice(held).pid
    hit = of_worker(trial, pid)
    end_process(pid)
    return hit or None


def kill_under(
    trial: Trial, lock: str, caught: Callable[[], list[Held]], rng: random.Random
) -> Hit | None:
    """Hold a lock until workers are caught by it, and kill one of them before it is let go.

    Whoever waits for the lock may hold what the others need, so it is let go now and then. Look at
    who waits from another connection: a transaction sees its first look over and over.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline and await_training(trial):
        with trial.database.engine.begin() as connection:
            connection.execute(text(lock))
            comes(lambda: caught() or is_over(trial), HOLD_SECONDS)
            stuck = caught()
            if stuck:
                pid = rng.choice(stuck).pid
                hit = of_worker(trial, pid)
                end_process(pid)
                return hit
    return None


def kill_in_flush(trial: Trial, rng: random.Random) -> Hit | None:
    """After last_epoch was moved and before its rows are in: both are one transaction."""

    def caught() -> list[Held]:
        held = trial.held()
        # With all of them stuck, whichever is killed is killed there.
        blocked = trial.database.scalar(BLOCKED_COPIES)
        return held if len({one.pid for one in held}) <= blocked else []

    return kill_under(trial, "LOCK TABLE curve IN SHARE MODE", caught, rng)


def kill_in_closing(trial: Trial, rng: random.Random) -> Hit | None:
    """After the run's summary was written and before its attempt is ended and committed."""

    def caught() -> list[Held]:
        closing = trial.database.scalar(BLOCKED_CLOSINGS) or ""
        named = re.search(r"WHERE run_id = (\d+) AND", closing)
        return [one for one in trial.held() if named and one.run == int(named[1])]

    return kill_under(trial, LOCK_ATTEMPTS, caught, rng)


def kill_in_checkpoint(trial: Trial, rng: random.Random) -> Hit | None:
    """While a checkpoint's temporary file exists: it is never taken for a checkpoint."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline and not is_over(trial):
        held = {one.key: one for one in trial.held()}
        seen = _writing(trial.checkpoints, list(held), time.monotonic() + 1.0)
        if seen is None:
            continue
        pid = held[seen.parent.name].pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            if seen.exists():
                hit = of_worker(trial, pid)
                end_process(pid)
                return hit
            os.kill(pid, signal.SIGCONT)
    return None


def _writing(checkpoints: Path, keys: list[str], until: float) -> Path | None:
    """A file in the middle of its write, looked for without rest."""
    folders = [checkpoints / key[:2] / key for key in keys]
    while time.monotonic() < until:
        for folder in folders:
            with contextlib.suppress(FileNotFoundError):
                for entry in os.scandir(folder):
                    if entry.name.startswith(".writing-"):
                        return Path(entry.path)
    return None


def freeze_worker(trial: Trial, rng: random.Random) -> Hit | None:
    """SIGSTOP past the lease while a second sweep takes over, then wake it: it is fenced."""
    held = await_training(trial)
    if not held:
        return None
    pid = rng.choice(held).pid
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    hit = of_worker(trial, pid)
    try:
        if not hit:
            return None
        nodes = trial.ground.nodes
        if len(nodes.workers) <= WORKER_CPUS:
            nodes.join()  # the frozen worker keeps its CPU, and the second sweep needs one
        comes(lambda: _taken_over(trial, hit) or not _runs(pid) or not _two_sweeps(trial))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    return hit


def _two_sweeps(trial: Trial) -> bool:
    """Let a second sweep start where there is none: one may also have ended at once."""
    if len(trial.living()) < 2:
        trial.sweep()
    return True


def _taken_over(trial: Trial, hit: Hit) -> bool:
    """Whether no run of these is running under the same attempt any more."""
    return not hit & all_of(trial.held())


def starve_worker(trial: Trial, rng: random.Random) -> Hit | None:
    """No more memory for one worker: its stack ends as a crash and is trained by another."""
    held = await_training(trial)
    if not held:
        return None
    pid = rng.choice(held).pid
    hit = of_worker(trial, pid)
    if not hit:
        return None
    with trial.ground.nodes.starved(pid, rng.choice(REFUSED_BYTES)):
        ended = comes(lambda: _taken_over(trial, hit) or is_over(trial))
    return hit if ended else None


# Checkpoints.


def damage_checkpoints(trial: Trial, rng: random.Random, *, truncate: bool) -> Hit | None:
    """Spoil the newest checkpoint of every run of a worker, and kill the worker."""
    held = [one for one in await_training(trial, epochs=50)]
    if not held:
        return None
    pid = rng.choice(held).pid
    hit = of_worker(trial, pid)
    keys = [one.key for one in trial.held() if one.pid == pid]
    end_process(pid)
    for key in keys:
        files = sorted((trial.checkpoints / key[:2] / key).glob("*.checkpoint"))
        if files:
            content = bytearray(files[-1].read_bytes())
            place = rng.randrange(len(content))
            if truncate:
                content = content[:place]
            else:
                content[place] ^= 1 << rng.randrange(8)
            files[-1].write_bytes(content)
    return hit or None


def corrupt_checkpoint(trial: Trial, rng: random.Random) -> Hit | None:
    return damage_checkpoints(trial, rng, truncate=False)


def truncate_checkpoint(trial: Trial, rng: random.Random) -> Hit | None:
    return damage_checkpoints(trial, rng, truncate=True)


# Ray.


def kill_node(trial: Trial, rng: random.Random) -> Hit | None:
    """Kill a raylet with all its workers, and let another node join."""
    return _replace_node(trial, rng, skew_seconds=0)


def skewed_node(trial: Trial, rng: random.Random) -> Hit | None:
    """Replace a node by one whose clock is an hour or a day off, into the past or the future."""
    return _replace_node(trial, rng, skew_seconds=rng.choice([-86_400, -3_600, 3_600, 86_400]))


def _replace_node(trial: Trial, rng: random.Random, *, skew_seconds: int) -> Hit | None:
    held = await_training(trial)
    if not held:
        return None
    nodes = trial.ground.nodes
    pid = rng.choice(held).pid
    node = nodes.of(pid)
    hit = of_worker(trial, pid)
    if node is None or not hit:
        return None
    nodes.kill(node)
    nodes.join(skew_seconds=skew_seconds)
    return hit


def kill_driver(trial: Trial, rng: random.Random) -> Hit | None:
    """Kill the driver, and start the sweep again."""
    held = await_training(trial)
    living = trial.living()
    if not held or not living:
        return None
    driver = rng.choice(living)
    hit = all_of(trial.held())
    driver.kill()
    driver.wait()
    trial.sweep()
    return hit


def second_driver(trial: Trial, rng: random.Random) -> Hit | None:
    """Two sweeps of one suite at once."""
    held = await_training(trial)
    if not held or len(trial.living()) > 2:
        return None
    trial.sweep()
    return all_of(held)


def terminate_driver(trial: Trial, rng: random.Random) -> Hit | None:
    """SIGTERM, then SIGKILL after three seconds: what `ray job stop` does to a sweep."""
    held = await_training(trial)
    living = trial.living()
    if not held or not living:
        return None
    driver = rng.choice(living)
    driver.terminate()
    comes(lambda: driver.poll() is not None, 3.0)
    driver.kill()
    driver.wait()
    trial.sweep()
    return all_of(held)


def stop_job(trial: Trial, rng: random.Random) -> Hit | None:
    """Sweep as a Ray job, `ray job stop` it while it trains, and start the sweep again."""
    held = await_training(trial)
    if not held:
        return None
    before = {one.sweep for one in held}
    for driver in trial.living():
        driver.kill()
        driver.wait()
    job = trial.submit()
    ours = ("--address", trial.ground.nodes.jobs)

    def ray_job(*arguments: str) -> str:
        words = ("job", *arguments, *ours)
        return trial.ground.commands.run(*words, program=("ray",), seconds=STALLED_SECONDS)[1]

    def training() -> bool:
        return any(one.sweep not in before and one.epoch > 0 for one in trial.held())

    if not comes(lambda: training() or not trial.open_runs()):
        failed = "FAILED" in ray_job("status", job)
        assert not failed, f"the job does not train: {ray_job('logs', job)}"
    hit = all_of([one for one in trial.held() if one.sweep not in before])
    said = ray_job("stop", job)
    if "was stopped" not in said:
        assert not trial.open_runs(), said  # it had ended by itself
        return None
    trial.sweep()
    return hit | all_of(held) if hit else None


# Postgres.


def restart_postgres(trial: Trial, rng: random.Random, how: signal.Signals) -> Hit | None:
    held = await_training(trial)
    if not held:
        return None
    postgres = trial.ground.postgres
    with trial.database_away():
        postgres.end(how)
        pause(rng)
        postgres.start()
    return all_of(held)


def restart_fast(trial: Trial, rng: random.Random) -> Hit | None:
    return restart_postgres(trial, rng, signal.SIGINT)


def restart_immediate(trial: Trial, rng: random.Random) -> Hit | None:
    return restart_postgres(trial, rng, signal.SIGQUIT)


def drop_connections(trial: Trial, rng: random.Random) -> Hit | None:
    held = await_training(trial)
    if not held:
        return None
    _drop(trial)
    return all_of(held)


def _drop(trial: Trial) -> None:
    with trial.database_away(), trial.ground.postgres.server.admin.connect() as connection:
        connection.execute(text(DROP_OTHERS), {"name": trial.database.name})


def slow_postgres(trial: Trial, rng: random.Random) -> Hit | None:
    """Every commit waits a tenth of a second for the disk, for a while."""
    held = await_training(trial)
    if not held:
        return None
    server = trial.ground.postgres.server
    try:
        server.execute("ALTER SYSTEM SET commit_siblings = 0")
        server.execute("ALTER SYSTEM SET commit_delay = 100000")
        server.execute("SELECT pg_reload_conf()")
        pause(rng)
    finally:
        server.execute("ALTER SYSTEM RESET commit_siblings")
        server.execute("ALTER SYSTEM RESET commit_delay")
        server.execute("SELECT pg_reload_conf()")
    return all_of(held)


def refuse_writes(trial: Trial, rng: random.Random) -> Hit | None:
    """The database is read-only for every new connection, and the old ones are dropped."""
    held = await_training(trial)
    if not held:
        return None
    server, name = trial.ground.postgres.server, trial.database.name
    try:
        server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        _drop(trial)
        pause(rng)
    finally:
        server.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        # Connections made meanwhile would stay read-only.
        _drop(trial)
    return all_of(held)


def fill_disk(trial: Trial, rng: random.Random) -> Hit | None:
    """No room is left where the tables are, until a write has failed and for a while longer."""
    held = await_training(trial)
    if not held:
        return None
    ground = trial.ground
    assert ground.disk is not None, "only root can make a disk of its own"
    seen = ground.postgres.log.stat().st_size

    def failed() -> bool:
        with ground.postgres.log.open("rb") as log:
            log.seek(seen)
            return b"No space left on device" in log.read()

    ballast = ground.disk / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(8192))
        comes(lambda: failed() or is_over(trial))
        pause(rng)
    finally:
        ballast.unlink()
    return all_of(held) if failed() else None


@dataclass(frozen=True)
class Named:
    """A fault, what the table calls it, and how often it comes up while others come up once."""

    name: str
    inject: Fault
    often: int = 1  # more for those that are over in a moment


FAULTS = [
    Named("worker killed at any moment", kill_worker, 3),
    Named("worker killed in a flush", kill_in_flush, 2),
    Named("worker killed in closing a run", kill_in_closing),
    Named("worker killed in a checkpoint's write", kill_in_checkpoint),
    Named("worker frozen past its lease, then woken", freeze_worker),
    Named("worker without memory", starve_worker),
    Named("newest checkpoints corrupted, worker killed", corrupt_checkpoint, 2),
    Named("newest checkpoints truncated, worker killed", truncate_checkpoint, 2),
    Named("node killed, another joins", kill_node),
    Named("node replaced by one with a wrong clock", skewed_node),
    Named("driver killed, sweep started again", kill_driver),
    Named("two drivers at once", second_driver, 2),
    Named("driver terminated, then killed", terminate_driver),
    Named("`ray job stop` in the middle", stop_job),
    Named("Postgres restarted, fast", restart_fast, 3),
    Named("Postgres restarted, immediate", restart_immediate, 3),
    Named("connections dropped", drop_connections, 3),
    Named("Postgres slow", slow_postgres, 2),
    Named("Postgres refuses writes", refuse_writes, 3),
    Named("Postgres's disk full", fill_disk),
]
BY_FUNCTION = {fault.inject: fault for fault in FAULTS}
