"""The README is short, and says where its numbers come from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from groktime.service.report.results import BEGIN, END, Finding, findings_markdown, in_readme

README = (Path(__file__).parents[3] / "README.md").read_text("utf-8")


def test_no_paragraph_is_longer_than_four_lines() -> None:
    outside = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    blocks = [block for block in re.split(r"\n\s*\n", outside) if block.strip()]
    prose = [b for b in blocks if not b.lstrip().startswith(("|", "<!--", "[results]", "1. "))]
    assert [block for block in prose if len(block.strip().splitlines()) > 4] == []


def test_the_table_of_findings_has_at_most_ten_rows_with_short_verdicts() -> None:
    table = README.split(BEGIN)[1].split(END)[0].strip().splitlines()[2:]
    assert 0 < len(table) <= 10
    for row in table:
        verdict = re.search(r"\[([^\]]+)\]\([^)]+\) \|$", row)
        assert verdict is not None, row
        assert len(verdict[1].split()) <= 3


def test_a_new_table_replaces_the_old_one_and_nothing_else() -> None:
    table = findings_markdown([Finding("c", "1", "2", "holds", "suite")], "docs/results")
    again = in_readme(README, table)
    assert table in again
    assert in_readme(again, table) == again
    assert again.split(BEGIN)[0] == README.split(BEGIN)[0]
    assert again.split(END)[1] == README.split(END)[1]


def test_a_readme_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="unpack"):
        in_readme("no markers here", "table")
