"""Per-cell tables: P_mem, P_cross, P_onset and residual in both methods and on both clocks."""

from __future__ import annotations

from dashboard.numbers import percent
from service.answers.cell_tests import CellRow, TestsAnswer
from service.report.content import CONVENTIONS, Convention, SuiteContent
from service.report.document import Block, Paragraph, Table
from service.report.words import convention_text, estimate, setting_or, signed, whole

STATUS = {
    "crossed": "crossed",
    "closest_approach": "closest approach",
    "mem_always_slower": "memorisation slower at every width trained",
    "mem_always_faster": "memorisation faster at every width trained",
    "insufficient_data": "too few widths",
}
ONSET = {
    "at_floor": "delayed at the narrowest width that fits its training set",
    "above_range": "not delayed at the widest width trained",
    "separated": "between two widths",
    "exact": "at a width",
    "insufficient_data": "too few widths",
}


def cell_tables(content: SuiteContent) -> list[Block]:
    """One table a convention, then the residuals of all side by side."""
    found: list[Block] = []
    for chosen in CONVENTIONS:
        answer = content.tests[chosen]
        if isinstance(answer, str):
            found.append(Paragraph(f"{convention_text(*chosen)}: no cells ({answer})."))
        else:
            found.append(_table(content, chosen, answer))
    found.append(_residuals(content))
    return found


def p_mem(content: SuiteContent, cell: CellRow, method: str) -> float | None:
    """K_mem / C_model of the cell, with C_model as the method fits it."""
    for part in content.settings:
        if part.setting == cell.setting and method in part.c_model:
            return cell.k_mem / part.c_model[method].value
    return None


def _table(content: SuiteContent, chosen: Convention, answer: TestsAnswer) -> Table:
    swept = bool(answer.axes)
    rows = []
    for cell in answer.cells:
        row = (
            str(cell.prime),
            *((setting_or(cell.setting, ""),) if swept else ()),
            whole(p_mem(content, cell, chosen[0])),
            estimate(cell.p_cross, cell.p_cross_low, cell.p_cross_high),
            crossing_words(cell),
            estimate(cell.p_onset, cell.p_onset_low, cell.p_onset_high),
            onset_words(cell),
            signed(cell.residual),
            f"{cell.last_batch} of {cell.batch_size}",
            f"{cell.seeds.speed} / {cell.seeds.grok}",
            f"{cell.censored.speed} / {cell.censored.grok}",
        )
        rows.append(row)
    interval = (
        f"P_cross with its {percent(answer.level)} seed-block interval, P_onset with its interval "
        "(fitted) or the two widths it lies between; few seeds: fewer than five at a width that "
        "the crossing rests on, where intervals of four cover some 90 % and of three some 75 %"
        if chosen[0] == "robust"
        else "closest approach of the seed-averaged curves, which has no interval"
    )
    header = (
        "p",
        *(("setting",) if swept else ()),
        "P_mem",
        "P_cross",
        "crossing",
        "P_onset",
        "onset",
        "residual, dex",
        "last batch",
        "seeds",
        "censored",
    )
    text = {"setting", "crossing", "onset"}
    return Table(
        name=f"{content.name}-cells-{chosen[0]}-{chosen[1]}",
        caption=f"{content.name}, {convention_text(*chosen)}: {interval}. P_mem is "
        "K_mem / C_model, fitted or the paper's (see Capacity). Last batch: examples in the last "
        "step of an epoch. Seeds and censored runs are speed / grok.",
        header=header,
        rows=tuple(rows),
        numeric=frozenset(i for i, name in enumerate(header) if name not in text),
    )


def crossing_words(cell: CellRow) -> str:
    """The status of a crossing as a reader understands it."""
    words = STATUS.get(cell.crossing_status, cell.crossing_status)
    words += " at an end of the widths" if cell.at_edge else ""
    return f"{words}, few seeds" if cell.few_seeds else words


def onset_words(cell: CellRow) -> str:
    """The status of an onset as a reader understands it."""
    words = [ONSET.get(cell.onset_status, cell.onset_status)]
    words += ["at the narrowest trained"] if cell.at_floor and "narrowest" not in words[0] else []
    words += ["at the widest trained"] if cell.at_cap and "widest" not in words[0] else []
    return ", ".join(words)


def _residuals(content: SuiteContent) -> Table:
    """Residuals of every cell by convention, with the paper's where it printed one."""
    answers = {chosen: content.by(chosen) for chosen in CONVENTIONS}
    known = next((a for a in answers.values() if a is not None), None)
    cells = () if known is None else known.cells
    printed = content.reference.residuals if content.reference is not None else {}
    rows = []
    for i, cell in enumerate(cells):
        values = [None if a is None else a.cells[i].residual for a in answers.values()]
        row = [str(cell.prime), setting_or(cell.setting, "all"), *(signed(v) for v in values)]
        if printed:
            row.append(signed(printed.get(cell.prime), 2))
        rows.append(tuple(row))
    header = ["p", "setting", *(f"{method}, {clock}" for method, clock in CONVENTIONS)]
    if printed and content.reference is not None:
        header.append(content.reference.column)
    return Table(
        name=f"{content.name}-residuals",
        caption=f"{content.name}: log₁₀(P_onset / P_cross) of every cell by method and clock.",
        header=tuple(header),
        rows=tuple(rows),
        numeric=frozenset({0, *range(2, len(header))}),
    )
