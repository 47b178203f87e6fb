"""Reports of a seeded database: real files, and numbers that are the answers' own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fixtures.commands import GROKTIME, ROOT
from fixtures.database import Database
from PIL import Image

from groktime.db.export import dump_suite
from groktime.db.load import load_dump
from groktime.service.answers.cell_tests import cell_tests, flat_answer
from groktime.service.answers.crossing import crossing
from groktime.service.answers.laws import law
from groktime.service.answers.question import NotEnough, Question, Unknown, reading
from groktime.service.errors import InputError
from groktime.service.report.assembly import ReportOrder, write_report
from groktime.service.report.content import CONVENTIONS, gather, provenance
from groktime.service.report.document import Bullets
from groktime.service.suites.loader import check_stored
from groktime.service.words import estimate, real, signed, whole

VOID = {"meta", "img", "br"}


@pytest.fixture(scope="module")
def written(shared_seeded: Database, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of both seeded suites, one of them only compared."""
    folder = tmp_path_factory.mktemp("report")
    engine = shared_seeded.reader()
    with reading(engine) as connection:
        write_report(connection, ReportOrder(["tiny"], ["decay"], folder))
    engine.dispose()
    return folder


@pytest.fixture(scope="module")
def swept(shared_seeded: Database, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a suite that sweeps an axis, written by the command."""
    folder = tmp_path_factory.mktemp("swept") / "made"
    code, output = report(shared_seeded, "decay", "--to", str(folder), "--name", "swept")
    assert code == 0, output
    assert sorted(output.splitlines()) == sorted(str(p) for p in folder.rglob("*.*"))
    return folder


def report(database: Database, *arguments: str) -> tuple[int, str]:
    """Run `groktime report` in a process of its own."""
    done = subprocess.run(
        [*GROKTIME, "report", *arguments],
        cwd=ROOT,
        env={**os.environ, "GROKTIME_DATABASE_URL": database.url, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def rows(text: str, caption: str) -> list[list[str]]:
    """Cells of the Markdown table under a caption that begins so."""
    lines = text.split(f"*{caption}", 1)[1].splitlines()
    table = [line for line in lines[2:]]
    end = next(i for i, line in enumerate(table) if not line.startswith("|"))
    split = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table[:end]]
    return [[re.sub(r"\\(.)", r"\1", cell.strip()) for cell in row] for row in split]


def test_every_cell_of_the_table_is_the_answers_own(written: Path, shared_seeded: Database) -> None:
    text = (written / "report.md").read_text("utf-8")
    engine = shared_seeded.reader()
    with reading(engine) as connection:
        for method, clock in CONVENTIONS:
            answer = cell_tests(connection, Question(suite="tiny", method=method, clock=clock))
            header, _, *table = rows(text, f"tiny, {method} method, {clock} clock")
            assert [row[0] for row in table] == ["23", "29", "31"]
            for row, cell in zip(table, answer.cells, strict=True):
                found = dict(zip(header, row, strict=True))
                one = crossing(connection, Question(suite="tiny", prime=cell.prime, method=method))
                assert found["P_mem"] == whole(one.p_mem)
                assert found["P_cross"] == estimate(
                    cell.p_cross, cell.p_cross_low, cell.p_cross_high
                )
                assert found["P_onset"] == estimate(
                    cell.p_onset, cell.p_onset_low, cell.p_onset_high
                )
                assert found["residual, dex"] == signed(cell.residual)
    engine.dispose()


def test_exact_numbers_are_written_beside_the_rounded_ones(
    written: Path, shared_seeded: Database
) -> None:
    exact = json.loads((written / "report.json").read_text("utf-8"))
    engine = shared_seeded.reader()
    with reading(engine) as connection:
        answer = flat_answer(cell_tests(connection, Question(suite="tiny")))
        laws = law(connection, Question(suite="tiny"))
    engine.dispose()
    stored = exact["tiny"]["tests"]["robust/online"]
    assert [c["p_cross"] for c in stored["cells"]] == [c.p_cross for c in answer.cells]
    assert [s["value"] for s in stored["pooled"]] == [s.value for s in answer.pooled]
    assert laws.pooled is not None
    assert exact["tiny"]["settings"][0]["law"]["pooled"]["a"] == laws.pooled.a
    text = (written / "report.md").read_text("utf-8")
    assert real(laws.pooled.a, laws.pooled.a_low, laws.pooled.a_high) in text.replace("\\", "")


def test_the_scope_counts_runs_as_they_are(written: Path) -> None:
    text = (written / "report.md").read_text("utf-8")
    header, _, *table = rows(text, "tiny: the suite's own runs.")
    found = {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in table}
    assert found["grok"]["missing"] == "1"
    assert (found["speed"]["failed"], found["speed"]["of these diverged"]) == ("1", "1")
    assert int(found["speed"]["censored"]) > 0
    assert found["capacity"]["done"] == "24"


def test_three_cells_are_said_not_to_be_testable(written: Path) -> None:
    text = (written / "report.md").read_text("utf-8")
    verdict = text.split("### Verdict", 1)[1].split("###", 1)[0]
    assert "Does the crossing predict the onset? Not testable" in verdict
    assert "a median has no 95 % interval" in verdict


def test_published_values_stand_beside_another_model_and_say_so(written: Path) -> None:
    text = (written / "report.md").read_text("utf-8")
    assert "They are another model's" in text
    assert "positions rope (published: none)" in text
    header, _, *table = rows(text, "tiny: pooled tests on 3 of 3 cells, robust method")
    paper = {row[1]: row[header.index("paper (another model)")] for row in table}
    assert paper["Spearman ρ"] == "0.976, p < 1e−3 (10 cells)"


def test_within_setting_rows_have_the_papers_beside_them(swept: Path) -> None:
    text = (swept / "swept.md").read_text("utf-8")
    _, _, *table = rows(text, "decay: residuals over the primes of each setting, robust method")
    assert [row[0] for row in table] == ["weight decay 0.1", "weight decay 1"]
    assert all("primes)" in row[6] for row in table)
    assert [row[5] for row in table] == ["under-resolved"] * 2


def test_suites_are_set_side_by_side(written: Path) -> None:
    text = (written / "report.md").read_text("utf-8")
    _, _, *table = rows(text, "Suites side by side, by method and training clock.")
    assert {row[0] for row in table} == {"tiny", "decay"}
    assert len(table) == 8
    assert "tiny: P_cross" in text
    assert "decay: residual" in text


def test_every_figure_exists_in_three_formats_and_can_be_opened(written: Path) -> None:
    text = (written / "report.md").read_text("utf-8")
    named = re.findall(r"\]\((report-figures/[^)]+)\.svg\)", text)
    stems = {Path(name).name for name in named}
    assert {"tiny-onset", "tiny-residual", "tiny-delay", "tiny-capacity", "tiny-law"} <= stems
    for name in named:
        assert ET.parse(written / f"{name}.svg").getroot().tag.endswith("svg")
        assert (written / f"{name}.pdf").read_bytes().startswith(b"%PDF-")
        with Image.open(written / f"{name}.png") as image:
            image.verify()
        with Image.open(written / f"{name}.png") as image:
            low, high = image.convert("L").getextrema()
            assert low < high


class Page(HTMLParser):
    """Checks that tags close in order and collects what the page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_refers_to_nothing_outside_itself(written: Path) -> None:
    page = Page()
    page.feed((written / "report.html").read_text("utf-8"))
    assert page.open == []
    assert "script" not in page.seen
    assert page.sources
    assert all(source.startswith("data:image/svg+xml;base64,") for source in page.sources)


def test_latex_has_every_table_with_columns_that_fit_its_rows(written: Path) -> None:
    text = (written / "report.tex").read_text("utf-8")
    assert text.isascii() or not re.search(r"[^\x00-\x7fÀ-ɏ]", text)
    tables = re.findall(r"\\begin\{longtable\}\{([lr]+)\}(.*?)\\end\{longtable\}", text, re.DOTALL)
    assert len(tables) == (written / "report.md").read_text("utf-8").count("\n| --")
    for columns, body in tables:
        lines = [line for line in body.splitlines() if line.endswith(r" \\")]
        assert lines
        assert {len(re.split(r"(?<!\\)&", line)) for line in lines} == {len(columns)}
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize("name", ["../out", "a/b", "", ".", "..", "x" * 99, "a\n", "/etc/x"])
def test_a_name_that_is_a_path_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--name"):
        ReportOrder(["tiny"], [], tmp_path, name)


def test_existing_files_are_replaced_only_when_forced_and_then_by_the_same_bytes(
    swept: Path, shared_seeded: Database, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text("mine")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "swept.md").symlink_to(outside)
    engine = shared_seeded.reader()
    order = ReportOrder(["decay"], [], folder, "swept")
    with reading(engine) as connection:
        with pytest.raises(InputError, match=r"swept\.md exists"):
            write_report(connection, order)
        assert [p.name for p in folder.iterdir()] == ["swept.md"]
        steps: list[str] = []
        again = write_report(connection, order, force=True, step=steps.append)
    engine.dispose()
    figures = {path.stem for path in again if path.suffix == ".pdf"}
    drawn = [f"drawing figure {i + 1} of {len(figures)}" for i in range(len(figures))]
    assert steps == ["analysing decay", *drawn]
    assert outside.read_text() == "mine"
    for path in again:
        assert path.read_bytes() == (swept / path.relative_to(folder)).read_bytes(), path.name


def test_the_command_refuses_to_replace_a_report(swept: Path, shared_seeded: Database) -> None:
    code, output = report(shared_seeded, "decay", "--to", str(swept), "--name", "swept")
    assert code == 2
    assert "exists; choose another folder or --name, or --force" in output


def test_a_suite_that_is_not_there_or_has_no_run_is_refused(
    seeded: Database, tmp_path: Path
) -> None:
    with seeded.engine.begin() as connection:
        with pytest.raises(Unknown, match=r"'\.\./tiny' is not in the database"):
            write_report(connection, ReportOrder(["../tiny"], [], tmp_path))
        connection.exec_driver_sql("DELETE FROM suite_runs")
        with pytest.raises(NotEnough, match="tiny has no finished run to report"):
            write_report(connection, ReportOrder(["tiny"], [], tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_suite_from_a_dump_says_that_it_was_recorded(
    seeded: Database, database: Database, tmp_path: Path
) -> None:
    dump = tmp_path / "decay.groktime"
    with seeded.engine.connect() as connection:
        dump_suite(connection, "decay", dump, dense=50)
    load_dump(database.engine, dump, check_stored)
    with reading(database.engine) as connection:
        content = gather(connection, "decay")
    facts, *_ = provenance(content, "groktime report decay --to DIR")
    assert isinstance(facts, Bullets)
    (said,) = [item for item in facts.items if item.startswith("Loaded from a recording of")]
    assert "torch" in said
    assert content.answer is not None
    assert content.answer.n == 4
