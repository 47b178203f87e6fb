"""A located suite as the database has it: its cells, what is known of each and wanted next.

Without Ray, so that the server and `groktime status` can tell how far a suite is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, text

from groktime.service.spec import RunSpec, ladder_index
from groktime.service.suites import Suite
from groktime.service.suites.schema import Analysis
from groktime.service.sweep.cost import flops_per_epoch
from groktime.service.sweep.locate import (
    Finding,
    Grid,
    LocatedKind,
    Noise,
    Prior,
    Progress,
    locate,
    pooled_noise,
)

T_GEN_EPOCHS = 300.0  # of a grok run, for the price of one that nobody has seen

KNOWN = """
SELECT r.id, r.key, r.state, r.reason, r.last_epoch, r.seconds,
    r.seconds * coalesce(CAST(substring(r.fingerprint FROM 'threads ([0-9]+)') AS integer), 1)
        AS core_seconds,
    r.first_online[:e_train] AS e_train, r.first_online[:t_mem] AS t_mem,
    r.first_val[:e_val] AS e_val, r.first_val[:t_gen] AS t_gen
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE sr.suite_id = :suite AND r.kind <> 'capacity'
"""

Run = tuple[LocatedKind, int, int]  # kind, width, seed


@dataclass
class Cell:
    """One prime at one setting: what may be trained there, and what is known."""

    label: str
    prime: int
    setting: Mapping[str, Any]
    specs: dict[Run, RunSpec]
    grid: Grid
    findings: list[Finding] = field(default_factory=list)
    taken: set[Run] = field(default_factory=set)  # in flight, or failed and not asked for again
    core_seconds: float = 0.0  # spent on runs that ended
    progress: Progress | None = None

    @property
    def runs(self) -> int:
        return len(self.findings) + len(self.taken)


def cells_of(suite: Suite) -> list[Cell]:
    """The suite's cells with everything its design may choose from."""
    grouped: dict[tuple[int, str], list[Any]] = {}
    for member in suite.members():
        if member.spec.kind != "capacity":
            setting = ", ".join(f"{name} {value}" for name, value in member.setting.items())
            grouped.setdefault((member.prime, setting), []).append(member)
    cells = []
    for (prime, setting), members in grouped.items():
        specs: dict[Run, RunSpec] = {
            (m.spec.kind, m.spec.model.width, m.spec.seed): m.spec for m in members
        }
        label = f"p={prime}" + (f", {setting}" if setting else "")
        cells.append(Cell(label, prime, members[0].setting, specs, _grid(specs)))
    return cells


def _grid(specs: Mapping[Run, RunSpec]) -> Grid:
    params = {width: spec.params for (_, width, _), spec in sorted(specs.items())}
    seeds = sorted({seed for _, _, seed in specs})
    some = next(iter(specs.values()))
    centre = math.log(some.k_mem) + Prior().crossing

    def seconds(kind: LocatedKind, width: int) -> float:
        """Relative price: work of an epoch times the epochs that are likely there."""
        spec = specs[kind, width, seeds[0]]
        epochs = T_GEN_EPOCHS
        if kind == "speed":
            below = 4.0 * (centre - math.log(params[width]))
            epochs = min(T_GEN_EPOCHS * math.exp(min(max(below, -3.0), 5.0)), spec.stop.max_epochs)
        return flops_per_epoch(spec) * epochs

    return Grid(dict(sorted(params.items())), seeds, seconds, some.k_mem)


def sharpened(prior: Prior, cells: Sequence[Cell]) -> Prior:
    """The prior of a cell once others of the suite are placed: they lie at like multiples of K_mem.

    A cell counts as much as the prior itself, so that three of them outweigh it.
    """
    crossings, onsets = [prior.crossing], [prior.onset]
    sums = {"mem": prior.noise.weight * prior.noise.mem**2, "gen": 0.0}
    sums["gen"] = prior.noise.weight * prior.noise.gen**2
    weight = prior.noise.weight
    for cell in cells:
        found = cell.progress
        if found is None:
            continue
        for points, point in ((crossings, found.crossing), (onsets, found.onset)):
            if point is not None and point.status == "placed" and point.params:
                points.append(math.log(point.params / cell.grid.k_mem))
        noise = pooled_noise(cell.findings, prior.noise)
        sums["mem"] += noise.mem**2
        sums["gen"] += noise.gen**2
        weight += 1
    return replace(
        prior,
        crossing=sum(crossings) / len(crossings),
        onset=sum(onsets) / len(onsets),
        noise=Noise(
            math.sqrt(sums["mem"] / weight), math.sqrt(sums["gen"] / weight), prior.noise.weight
        ),
    )


class LocatedCells:
    """The cells of a located suite; `learn` makes them know what the database has."""

    def __init__(self, suite: Suite, primes: Collection[int] = ()) -> None:
        assert suite.file.design is not None, "only located suites choose their runs"
        self.design = suite.file.design
        self.cells = [cell for cell in cells_of(suite) if not primes or cell.prime in primes]
        self._places: dict[str, list[tuple[Cell, Run]]] = {}
        for cell in self.cells:
            for run, spec in cell.specs.items():
                self._places.setdefault(spec.key, []).append((cell, run))

    def learn(self, rows: Iterable[Any]) -> None:
        """Take in the suite's runs as `known_runs` reads them, and think again."""
        for cell in self.cells:
            cell.findings.clear()
            cell.taken.clear()
            cell.core_seconds = 0.0
        for row in rows:
            for cell, (kind, width, seed) in self._places.get(row.key, ()):
                cell.core_seconds += float(row.core_seconds or 0)
                diverged = row.state == "failed" and row.reason == "diverged"
                if row.state not in ("done", "set_aside") and not diverged:
                    cell.taken.add((kind, width, seed))
                    continue
                epoch = row.t_mem if kind == "speed" else row.t_gen
                delayed = _delayed(row) if kind == "grok" else None
                cell.findings.append(Finding(kind, width, seed, epoch, row.last_epoch, delayed))
        prior = sharpened(Prior(), self.cells)
        for cell in self.cells:
            cell.progress = locate(
                cell.grid,
                cell.findings,
                precision=self.design.precision,
                wanted=self.design.place,
                prior=prior,
                in_flight=cell.taken,
            )


def known_runs(connection: Connection, suite_id: int, analysis: Analysis) -> Sequence[Any]:
    """The suite's speed and grok runs, with their first passages at its thresholds."""
    columns = {
        name: ladder_index(getattr(analysis.thresholds, name)) or ladder_index(0.99)
        for name in ("e_train", "t_mem", "e_val", "t_gen")
    }
    return connection.execute(text(KNOWN), {"suite": suite_id, **columns}).all()


def _delayed(row: Any) -> bool | None:
    """ΔE > 0; None: training never got there, or was censored together with validation."""
    if row.e_train is None:
        return None
    if row.e_val is None:
        return True if row.last_epoch > row.e_train else None
    return bool(row.e_val > row.e_train)


def described(cell: Cell) -> str:
    """`crossing 41,200 (± 0.02 dex, 36,832–46,044), onset searching; 14 runs`."""
    parts = []
    for name in ("crossing", "onset"):
        point = getattr(cell.progress, name) if cell.progress else None
        if point is None:
            continue
        if point.params is None:
            parts.append(f"{name} {point.status}")
            continue
        text_ = f"{name} {point.params:,.0f}"
        about = [] if point.half_width is None else [f"± {point.half_width:.3f} dex"]
        if point.bracket:
            about.append(f"{point.bracket[0]:,.0f}–{point.bracket[1]:,.0f}")
        about.append(point.status)
        parts.append(f"{text_} ({', '.join(about)})")
    return f"{'; '.join(parts)}; {cell.runs} runs"
