"""What runs on a Ray worker: a Tune trainable that claims a bundle's runs and trains them.

Tune only schedules. It hears of a stack when it is trained, and a trial that is retried or
reused starts from what the database and the checkpoints say, never from memory.

Torch takes seconds to import: it is left to where training begins, so that the driver does
without it and a worker can be ended while it is still starting.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray
from pydantic import SecretStr
from ray import tune
from sqlalchemy import Engine as Database
from sqlalchemy import text

from groktime.db.claims import Claim, claim, release, revoke_leases
from groktime.db.engine import connect, first_line, require_current, retrying
from groktime.db.recorder import Recorder
from groktime.db.suites import spec_from_json
from groktime.service.errors import ConfigurationError, DatabaseError
from groktime.service.logs import redact
from groktime.service.settings import Settings
from groktime.service.spec import RunSpec
from groktime.workers.checkpoints import CheckpointStore

if TYPE_CHECKING:
    from groktime.workers.engines import Engine
    from groktime.workers.graphed import StepMode

log = logging.getLogger(__name__)

LONGEST_REASON = 300  # characters of an error that are kept

SPECS = "SELECT id, spec FROM runs WHERE id = ANY(:ids) AND state NOT IN ('done', 'failed')"


@dataclass(frozen=True)
class WorkerConfig:
    """What a worker must know beside its bundle; the URL's password is not shown."""

    database_url: SecretStr
    checkpoints: str
    checkpoint_seconds: float
    lease_seconds: float
    device: str
    engine: Engine
    gpu_step: StepMode

    @classmethod
    def of(cls, settings: Settings, database_url: str, device: str) -> WorkerConfig:
        """For workers that write with the writer's URL where settings name one."""
        return cls(
            settings.writer_url or SecretStr(database_url),
            str(settings.checkpoint_dir),
            settings.checkpoint_seconds,
            settings.lease_seconds,
            device,
            settings.engine,
            settings.gpu_step,
        )


class BundleTrainable(tune.Trainable):
    """One trial is one bundle; one step is one of its stacks."""

    def setup(self, config: dict[str, Any], worker: WorkerConfig | None = None) -> None:
        assert worker is not None, "its settings come by tune.with_parameters"
        self._worker = worker
        self._database: Database | None = None
        self._store = CheckpointStore(worker.checkpoints)
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next bundle; nothing but the database connection is carried over."""
        bundle = new_config["bundle"]
        self._name: str = bundle["name"]
        self._stacks: list[list[int]] = [list(ids) for ids in bundle["stacks"]]
        self._spares: list[list[int]] = [list(ids) for ids in bundle["spares"]]
        self._fresh = True
        return True

    def step(self) -> dict[str, Any]:
        """Train the next stack. What no retry can mend is reported instead of raised."""
        try:
            database = self._connected()
            if self._fresh:
                # An earlier try of this bundle is over, or Ray would not have begun another.
                retrying(lambda: revoke_leases(database, f"{self._name}@"))
                self._fresh = False
            seconds = self._train(database, self._stacks.pop(0), self._spares.pop(0))
        except (DatabaseError, ConfigurationError) as problem:
            return {"refused": str(problem), "training_seconds": 0.0, "done": True}
        return {"training_seconds": seconds, "done": not self._stacks}

    def cleanup(self) -> None:
        if self._database is not None:
            self._database.dispose()

    def _connected(self) -> Database:
        if self._database is None:
            url = self._worker.database_url
            database = connect(url, "writer", pool_size=0, check_schema=False)
            retrying(lambda: require_current(database))
            self._database = database
        return self._database

    def _train(self, database: Database, ids: Sequence[int], spares: list[int]) -> float:
        """Train the open runs among these; returns the seconds spent in training.

        Spares are runs of the same shape that nobody has begun: they take the places of those that
        end, unless another worker has them by then.
        """
        specs = retrying(lambda: open_specs(database, ids))
        seconds = 0.0
        for part in self._parts(specs):
            claims = self.claimed(database, part)
            if claims:
                seconds += self._train_claims(database, claims, spares)
        return seconds

    def _parts(self, specs: dict[int, RunSpec]) -> Iterator[dict[int, RunSpec]]:
        """The stack cut to what the device can hold now."""
        if not specs:
            return
        from groktime.workers.devices import max_stack

        items = list(specs.items())
        most = max_stack(items[0][1], self._worker.device, gpu_share())
        for first in range(0, len(items), most):
            yield dict(items[first : first + most])

    def claimed(self, database: Database, specs: dict[int, RunSpec]) -> list[Claim]:
        """Lease the runs, each from the newest checkpoint this engine can go on from."""
        from groktime.workers.engines import trainer_of

        worker = self._worker
        any_of_them = next(iter(specs.values()))  # a stack's runs have one shape
        trainer = trainer_of(
            any_of_them, engine=worker.engine, device=worker.device, gpu_step=worker.gpu_step
        )
        usable = {
            run_id: self._store.epochs(spec.key, trainer.fingerprint)
            for run_id, spec in specs.items()
        }
        owner = f"{self._name}@{socket.gethostname()}:{os.getpid()}"
        # A claim whose answer was lost is not found free again: the sweep gives it to another.
        return retrying(
            lambda: claim(database, list(specs), owner, worker.lease_seconds, usable, trainer)
        )

    def _train_claims(
        self, database: Database, claims: Sequence[Claim], spares: list[int]
    ) -> float:
        """Train what was claimed; what is left of it after an error is given back with the error.

        Returns the seconds spent.
        """
        begin, held = time.monotonic(), list(claims)
        try:
            self._train_recorded(database, held, spares)
        except Exception as error:
            give_back(database, held, f"{type(error).__name__}: {first_line(error)}")
            raise
        return time.monotonic() - begin

    def _train_recorded(self, database: Database, held: list[Claim], spares: list[int]) -> None:
        """Train what is held; what is taken from the spares is held from then on."""
        from groktime.workers.training import train

        worker, claims = self._worker, list(held)

        def refill(places: int) -> list[tuple[RunSpec, int]]:
            while spares:
                asked, spares[:] = spares[:places], spares[places:]
                specs = retrying(lambda ids=asked: open_specs(database, ids))  # type: ignore[misc]
                taken = self.claimed(database, specs) if specs else []
                if taken:
                    held.extend(taken)
                    recorder.add(taken)
                    return [(claimed.spec, claimed.resume_epoch) for claimed in taken]
            return []

        with Recorder(database, claims, lease_seconds=worker.lease_seconds) as recorder:
            train(
                [claimed.spec for claimed in claims],
                recorder,
                device=worker.device,
                engine=worker.engine,
                gpu_step=worker.gpu_step,
                checkpoints=self._store,
                resume_epochs=[claimed.resume_epoch for claimed in claims],
                checkpoint_seconds=worker.checkpoint_seconds,
                refill=refill,
            )


def give_back(database: Database, claims: Sequence[Claim], reason: str) -> None:
    """Release the runs, if that is possible still: otherwise their leases end by themselves."""
    try:
        release(database, claims, redact(reason)[:LONGEST_REASON])
    except Exception as error:  # must not hide the one that ended the training
        log.warning("runs are not given back: %s", first_line(error))


def gpu_share() -> float:
    """The part of a GPU that Ray gave this worker; all of it where Ray gave none or several."""
    context = ray.get_runtime_context()
    assigned = context.get_assigned_resources()  # type: ignore[no-untyped-call]
    return min(1.0, float(assigned.get("GPU", 1.0)))


def open_specs(database: Database, ids: Sequence[int]) -> dict[int, RunSpec]:
    """Specs of the runs that are not closed, in the order asked."""
    with database.connect() as connection:
        found = {row.id: row.spec for row in connection.execute(text(SPECS), {"ids": list(ids)})}
    return {run_id: spec_from_json(found[run_id]) for run_id in ids if run_id in found}
