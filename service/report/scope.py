"""What a suite is, how far and how densely it was trained, and with what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from groktime.service.analysis import ANALYSIS_VERSION
from groktime.service.answers.suites import CellCoverage, CoverageAnswer, TrainingAnswer
from groktime.service.answers.verdicts import thresholds_text
from groktime.service.report.content import SuiteContent
from groktime.service.report.document import Block, Bullets, Command, Paragraph, Table
from groktime.service.suites.loader import load_suite, shipped_suites
from groktime.service.words import axis_name, count, setting_text, span, whole

SHORT_HASH = 12


def scope(content: SuiteContent) -> list[Block]:
    """The suite, its grid, and its runs by kind and state."""
    summary = content.summary
    found: list[Block] = []
    if summary.description:
        found.append(Paragraph(summary.description))
    found.append(Bullets(tuple(_facts(content))))
    found.append(_runs(content))
    if not summary.complete:
        found.append(_trained(content))
    if content.coverage.failures:
        reasons = "; ".join(f"{f.runs:,} × {f.reason}" for f in content.coverage.failures)
        found.append(Paragraph(f"Failed runs: {reasons}."))
    return found


def _facts(content: SuiteContent) -> list[str]:
    summary, training = content.summary, content.training
    facts = [
        f"Suite {summary.name}, revision {summary.revision}; primes "
        f"{', '.join(map(str, summary.primes))}."
    ]
    if summary.axes:
        swept = "; ".join(
            f"{axis_name(axis)} {', '.join(map(str, values))}"
            for axis, values in summary.axes.items()
        )
        facts.append(f"Swept: {swept}.")
    positions = content.record.spec.get("positions")
    if positions:
        facts.append(f"Positions of the networks: {positions}.")
    if training.widths is not None:
        facts.append(f"Widths {training.widths[0]} to {training.widths[1]}.")
    answer = content.answer
    if answer is not None:
        seeds = sorted({(c.seeds.speed, c.seeds.grok) for c in answer.cells})
        speed, grok = (sorted({pair[i] for pair in seeds}) for i in (0, 1))
        facts.append(f"Seeds a cell: {span(speed)} speed, {span(grok)} grok.")
        cap = f", widths above {answer.max_width} left out" if answer.max_width else ""
        facts.append(f"Thresholds: {thresholds_text(answer.thresholds)}{cap}.")
    if summary.inherited:
        facts.append(f"{count(summary.inherited, 'run')} inherited from other suites.")
    facts.append(cost(training))
    if not summary.complete:
        facts += missing_sentence(content.coverage)
    return facts


def cost(training: TrainingAnswer) -> str:
    """Core-hours and epochs in a sentence."""
    if training.core_hours is None or not training.epochs:
        return "Cost: no run trained yet."
    hours = f"{training.core_hours:.3g} core-hours"
    return f"Cost: {hours} of training, {whole(training.epochs)} epochs."


def _runs(content: SuiteContent) -> Table:
    rows = []
    for kind, states in content.coverage.kinds.items():
        cells = [c for c in content.coverage.cells if c.kind == kind]
        rows.append(
            (
                kind,
                whole(states.done),
                whole(sum(c.censored for c in cells)),
                whole(states.failed),
                whole(sum(c.diverged for c in cells)),
                whole(states.pending + states.running + states.stale),
            )
        )
    return Table(
        name=f"{content.name}-runs",
        caption=f"{content.name}: the suite's own runs. Censored runs are done runs that the cap "
        "on epochs stopped before their threshold.",
        header=("kind", "done", "censored", "failed", "of these diverged", "missing"),
        rows=tuple(rows),
        numeric=frozenset(range(1, 6)),
    )


def missing_sentence(coverage: CoverageAnswer) -> Iterator[str]:
    """What of the suite is not trained: whole widths, or seeds at widths in use."""
    apart = {True: 0, False: 0}
    for cell in coverage.cells:
        apart[_tried(cell)] += cell.states.pending + cell.states.running + cell.states.stale
    if apart[False]:
        yield f"{count(apart[False], 'run')} of the suite at widths left out so far."
    if apart[True]:
        yield f"{count(apart[True], 'run')} missing at widths in use: numbers may still change."


def _tried(cell: CellCoverage) -> bool:
    return cell.states.done + cell.states.failed > 0


def _trained(content: SuiteContent) -> Table:
    """The widths in use, by prime and setting, with their seeds."""
    cells = [c for c in content.coverage.cells if _tried(c) and c.kind != "capacity"]
    places = dict.fromkeys((c.prime, setting_text(c.setting, "all")) for c in cells)
    rows = []
    for prime, setting in sorted(places):
        row = [str(prime), setting]
        for kind in ("speed", "grok"):
            row.append(
                _widths(
                    c
                    for c in cells
                    if (c.kind, c.prime, setting_text(c.setting, "all")) == (kind, prime, setting)
                )
            )
        rows.append(tuple(row))
    return Table(
        name=f"{content.name}-widths",
        caption=f"{content.name}: widths trained, with the number of seeds in brackets.",
        header=("p", "setting", "speed", "grok"),
        rows=tuple(rows),
        numeric=frozenset({0}),
    )


def _widths(cells: Iterator[CellCoverage]) -> str:
    """`40 48 56 (5), 64 (3)`."""
    ordered = sorted(cells, key=lambda c: c.width)
    runs = groupby(ordered, key=lambda c: c.states.done + c.states.failed)
    return ", ".join(f"{' '.join(str(c.width) for c in group)} ({n})" for n, group in runs)


def _recorded(made: Mapping[str, Any]) -> str:
    """A suite that came from a dump: when it was written, by what, and what was thinned."""
    commit = made.get("git_commit")
    versions = ", ".join(f"{name} {v}" for name, v in sorted((made.get("versions") or {}).items()))
    words = f"Loaded from a recording of {made.get('dumped_at', 'unknown date')}"
    words += f", commit {str(commit)[:SHORT_HASH]}" if commit else ""
    words += f": {versions}" if versions else ""
    if made.get("thinning"):
        words += f"; curves keep {str(made['thinning']).rstrip('.')}"
    return f"{words}."


def provenance(content: SuiteContent, command: str) -> list[Block]:
    """Engines, fingerprints, code, versions, and how to make the report again."""
    training = content.training
    facts = [
        f"Suite hash {content.summary.hash[:SHORT_HASH]}, revision {content.summary.revision}"
        + (", frozen." if content.summary.frozen else "."),
    ]
    if training.first_closed is not None and training.last_closed is not None:
        first, last = (
            f"{at:%Y-%m-%d %H:%M} UTC" for at in (training.first_closed, training.last_closed)
        )
        facts.append(
            f"Runs closed between {first} and {last} on {count(training.hosts, 'machine')}."
        )
    for used in training.engines:
        facts.append(
            f"{count(used.runs, 'run')} by {used.engine} on {used.device}: {used.fingerprint}."
        )
    for code in training.code:
        versions = ", ".join(f"{name} {value}" for name, value in sorted(code.versions.items()))
        commit = (
            "code outside a checkout"
            if code.commit is None
            else f"commit {code.commit[:SHORT_HASH]}"
        )
        changed = " with uncommitted changes" if code.dirty else ""
        facts.append(f"{count(code.runs, 'run')} with {commit}{changed}: {versions}.")
    if training.recorded is not None:
        facts.append(_recorded(training.recorded))
    answer = content.answer
    if answer is not None:
        facts.append(f"Analysis version {ANALYSIS_VERSION}.")
    found: list[Block] = [
        Bullets(tuple(facts)),
        Paragraph(
            "To write this report again from the same runs; those of a recording come back by "
            "groktime db load:"
        ),
        Command((command,)),
    ]
    if not content.summary.complete:
        found += [
            Paragraph("To train what is missing of the suite:"),
            Command((f"groktime sweep {content.name}",)),
        ]
    return found


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
    for kind, prime, setting, width, number in sampled:
        seeds.add(number)
        widths[kind][prime, setting].add(width)
    counts = {
        kind: span(sorted({len(found) for found in cells.values()} or {0}))
        for kind, cells in widths.items()
    }
    return (
        f"{span(sorted(seeds or {0}))} seeds at {counts['speed']} speed and {counts['grok']} grok "
        "widths a prime"
    )
