"""A report as files: Markdown, one HTML page, LaTeX, exact numbers and figures."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Connection

from groktime.service.analysis.capacity import BitsPerParameter
from groktime.service.answers.capacity import CapacityAnswer
from groktime.service.answers.cell_tests import TestsAnswer, flat_answer
from groktime.service.answers.delay_law import DelayLawAnswer
from groktime.service.answers.law import LawAnswer
from groktime.service.answers.suites import TrainingAnswer
from groktime.service.errors import InputError
from groktime.service.report.assembly import Report, assemble
from groktime.service.report.canvas import render
from groktime.service.report.content import SuiteContent, gather
from groktime.service.report.document import latex, markdown, webpage
from groktime.service.report.verdict import verdict

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,80}")


@dataclass(frozen=True)
class ReportOrder:
    """What is to be written: the suites of the chapters, those only compared, and where to."""

    suites: Sequence[str]
    compare: Sequence[str]
    folder: Path
    name: str = "report"

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InputError(
                f"--name = {self.name!r} is not accepted; letters, digits, - and _, no path"
            )
        twice = [s for s in self.compare if s in self.suites]
        if twice:
            raise InputError(f"--compare = {twice[0]!r} is already reported; name another suite")

    @property
    def command(self) -> str:
        """The command that writes this report."""
        compared = "".join(f" --compare {suite}" for suite in self.compare)
        named = "" if self.name == "report" else f" --name {self.name}"
        # Where to is the reader's choice, and the writer's folders are nobody's business.
        return f"groktime report {' '.join(self.suites)}{compared} --to DIR{named}"


def write_report(
    connection: Connection,
    order: ReportOrder,
    *,
    force: bool = False,
    step: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Write the report's files and return their paths; existing ones only with `force`.

    `step` is told what comes next, such as `drawing figure 3 of 12`.
    """
    if not force:
        _refuse_existing(order)

    def content(name: str) -> SuiteContent:
        step(f"analysing {name}")
        return gather(connection, name)

    chapters = [content(name) for name in dict.fromkeys(order.suites)]
    compared = [content(name) for name in dict.fromkeys(order.compare)]
    report = assemble(chapters, compared, order.command)
    files = _texts(report, order, [*chapters, *compared])
    figures = f"{order.name}-figures"
    pictures: dict[str, bytes] = {}
    for number, drawing in enumerate(report.drawings, 1):
        step(f"drawing figure {number} of {len(report.drawings)}")
        for kind, data in render(drawing).items():
            files[f"{figures}/{drawing.stem}.{kind}"] = data
            if kind == "svg":
                pictures[drawing.stem] = data
    files[f"{order.name}.html"] = webpage(report.document, pictures).encode()
    return [put_file(order.folder / path, data) for path, data in files.items()]


def _refuse_existing(order: ReportOrder) -> None:
    """Before any work: nobody's file is replaced unasked."""
    texts = [order.folder / f"{order.name}.{kind}" for kind in ("md", "html", "tex", "json")]
    for path in (*texts, order.folder / f"{order.name}-figures"):
        if path.exists() or path.is_symlink():
            raise InputError(
                f"--to: {path} exists; choose another folder or --name, or --force to replace it"
            )


def _texts(
    report: Report, order: ReportOrder, contents: Sequence[SuiteContent]
) -> dict[str, bytes]:
    figures = f"{order.name}-figures"
    exact = {content.name: numbers(content) for content in contents}
    return {
        f"{order.name}.md": markdown(report.document, figures).encode(),
        f"{order.name}.tex": latex(report.document, figures).encode(),
        f"{order.name}.json": (json.dumps(exact, indent=1, ensure_ascii=False) + "\n").encode(),
    }


def put_file(path: Path, content: bytes) -> Path:
    """Write a whole file or none; a link at its place is replaced, not followed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".groktime-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise InputError(f"--to: {path} cannot be written ({error.strerror})") from error
    return path


def numbers(content: SuiteContent) -> dict[str, Any]:
    """The report's numbers unrounded, as the answers have them."""
    reference = content.reference
    return {
        "suite": content.name,
        "revision": content.summary.revision,
        "convention": list(content.main),
        "verdict": list(verdict(content)),
        "training": _plain(TrainingAnswer, content.training),
        "tests": {
            f"{method}/{clock}": answer
            if isinstance(answer, str)
            else _plain(TestsAnswer, flat_answer(answer))
            for (method, clock), answer in content.tests.items()
        },
        "delay_law": content.delay_law
        if isinstance(content.delay_law, str)
        else _plain(DelayLawAnswer, content.delay_law),
        "settings": [
            {
                "setting": dict(part.setting),
                "law": part.law if isinstance(part.law, str) else _plain(LawAnswer, part.law),
                "capacity": part.capacity
                if isinstance(part.capacity, str)
                else _plain(CapacityAnswer, part.capacity),
                "c_model": {m: _plain(BitsPerParameter, b) for m, b in part.c_model.items()},
                "p_mem": {p.crossing.prime: p.crossing.p_mem for p in part.panels},
            }
            for part in content.settings
        ],
        "published": None
        if reference is None
        else {
            "suite": reference.suite,
            "same_model": reference.same_model,
            "differences": list(reference.differences),
        },
    }


def _plain(kind: type[Any], answer: Any) -> Mapping[str, Any]:
    dumped: dict[str, Any] = TypeAdapter(kind).dump_python(answer, mode="json")
    return dumped
