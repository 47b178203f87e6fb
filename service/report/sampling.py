"""How densely a suite was measured beside the sweep that the paper printed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from service.report.content import SuiteContent
from service.report.words import span, whole
from service.suites.loader import load_suite, shipped_suites

Sampled = tuple[str, int, str, int, int]  # kind, prime, setting, width, seeds


def sampling(content: SuiteContent) -> str:
    """Seeds, widths and caps on both sides: what a comparison of settings does not tell."""
    reference = content.reference
    if reference is None or reference.suite not in shipped_suites():
        return ""
    theirs: dict[tuple[str, int, str, int], set[int]] = defaultdict(set)
    caps = set()
    for spec in load_suite(reference.suite).runs():
        if spec.kind != "capacity":
            run = spec.columns()
            setting = str([run.get(axis) for axis in content.summary.axes])
            theirs[spec.kind, run["prime"], setting, run["width"]].add(spec.seed)
            caps.add(spec.stop.max_epochs)
    ours = [
        (c.kind, c.prime, str(c.setting), c.width, c.states.done + c.states.failed)
        for c in content.coverage.cells
        if c.kind != "capacity" and c.states.done + c.states.failed
    ]
    cap = content.record.spec.get("stop", {}).get("max_epochs")
    stopped = "" if cap is None else f", runs stopped at {whole(cap)} epochs"
    whose = "Ours, inherited runs aside," if content.summary.inherited else "Ours"
    return (
        f"{whose} were measured with {_density(ours)}{stopped}; the published sweep with "
        f"{_density([(*place, len(seeds)) for place, seeds in theirs.items()])}, runs stopped at "
        f"{span(sorted(caps))} epochs."
    )


def _density(sampled: Iterable[Sampled]) -> str:
    seeds: set[int] = set()
    widths: dict[str, dict[tuple[int, str], set[int]]] = {
        "speed": defaultdict(set),
        "grok": defaultdict(set),
    }
    for kind, prime, setting, width, count in sampled:
        seeds.add(count)
        widths[kind][prime, setting].add(width)
    counts = {
        kind: span(sorted({len(found) for found in cells.values()} or {0}))
        for kind, cells in widths.items()
    }
    return (
        f"{span(sorted(seeds or {0}))} seeds at {counts['speed']} speed and {counts['grok']} grok "
        "widths a prime"
    )
