"""Closing a run: its summary, its attempt's end and its suites' new revisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from db.claims import Claim
from db.curve_rows import COUNTS, absent_columns
from db.passages import RunProgress


class Outcome(Protocol):
    """How training ended; workers/training.py makes these."""

    @property
    def state(self) -> Literal["done", "failed"]: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def stopped_by(self) -> str: ...
    @property
    def epochs(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def engine(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...


@dataclass(frozen=True)
class Closing:
    """A run to be closed in the transaction of its last rows."""

    claim: Claim
    outcome: Outcome
    summary: dict[str, Any]


# The compare-and-set on last_epoch of the same transaction has already locked the row and found
# it ours; a run that closes without new rows is checked here.
CLOSE_RUN = """
UPDATE runs SET state = %(state)s, reason = %(reason)s, stopped_by = %(stopped_by)s,
    owner = NULL, lease_until = NULL, closed_at = clock_timestamp(),
    first_online = %(first_online)s, first_eval = %(first_eval)s, first_val = %(first_val)s,
    final_train_loss = %(train_loss)s, final_train_correct = %(train_correct)s,
    final_train_correct_eval = %(train_correct_eval)s, final_val_loss = %(val_loss)s,
    final_val_correct = %(val_correct)s, final_weight_norm = %(weight_norm)s,
    bits = %(bits)s, best_train_loss = %(best_train_loss)s, seconds = %(seconds)s,
    device = %(device)s, engine = %(engine)s, fingerprint = %(fingerprint)s
WHERE id = %(run_id)s AND attempt = %(attempt)s AND state = 'running'
    AND last_epoch = %(epochs)s
"""

CLOSE_ATTEMPT = """
UPDATE attempts SET state = %(state)s, reason = %(reason)s, ended_at = clock_timestamp(),
    device = %(device)s, engine = %(engine)s, fingerprint = %(fingerprint)s
WHERE run_id = %(run_id)s AND attempt = %(attempt)s
"""


def summarise(claim: Claim, progress: RunProgress, outcome: Outcome) -> Closing:
    """Parameters of the closing statements; reals stay non-finite where they were."""
    summary: dict[str, Any] = {
        "run_id": claim.run_id,
        "attempt": claim.attempt,
        "state": outcome.state,
        "reason": (outcome.reason or "unknown") if outcome.state == "failed" else None,
        "stopped_by": outcome.stopped_by,
        "epochs": outcome.epochs,
        "seconds": outcome.seconds,
        "device": outcome.device,
        "engine": outcome.engine,
        "fingerprint": outcome.fingerprint,
        "best_train_loss": progress.best_train_loss,
    }
    for clock, passages in progress.passages.items():
        summary[f"first_{clock}"] = passages.epochs
    absent = absent_columns(claim.spec)
    last = progress.last
    for name in ("train_loss", "val_loss", "bits", "weight_norm", *COUNTS):
        if last is None or name in absent:
            summary[name] = None
        else:
            summary[name] = int(last[name]) if name in COUNTS else float(last[name])
    return Closing(claim, outcome, summary)
