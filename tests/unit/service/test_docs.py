"""What users can set is documented, and what documents name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from groktime.service.settings import Settings

ROOT = Path(__file__).parents[3]


def test_every_setting_has_a_row_in_the_documentation() -> None:
    table = (ROOT / "docs" / "settings.md").read_text()
    missing = [
        variable
        for name in Settings.model_fields
        if (variable := f"`GROKTIME_{name.upper()}`") not in table
    ]
    assert missing == []


PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("[a-z]*/*.md"), *ROOT.glob("workers/*/*.md"))
)
FOLDERS = "api|benchmarks|dashboard|db|deploy|docs|scripts|service|tests|workers"
MADE = "deploy/secrets"  # by deploy/make-secrets


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    named = re.findall(rf"`((?:{FOLDERS})/[\w./-]+)`", text)
    linked = re.findall(r"\]\(([^):#]+)\)", text)
    missing = [n for n in named if not (ROOT / n).exists() and not n.startswith(MADE)]
    missing += [n for n in linked if not (ROOT / page).parent.joinpath(n).exists()]
    assert missing == []


def anchors(page: Path) -> set[str]:
    """The anchors that a reader of the rendered page can be sent to."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_every_heading_that_a_page_links_to_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    linked = re.findall(r"(?:\]\(|^\[\w+\]: )([^):\s#]*)#([\w-]+)", text, re.MULTILINE)
    targets = [(ROOT / page).parent / file if file else ROOT / page for file, _ in linked]
    dead = [a for target, (_, a) in zip(targets, linked, strict=True) if a not in anchors(target)]
    assert dead == []


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_exists(page: str) -> None:
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", (ROOT / page).read_text())
    assert [name for name in named if f"def {name}(" not in tests] == []


def test_every_file_in_the_pictures_of_the_architecture_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    pictures = "".join(re.findall(r"```mermaid\n(.*?)```", text, flags=re.DOTALL))
    named = set(re.findall(rf"\b((?:{FOLDERS})/[\w./-]*\w)", pictures))
    assert len(named) > 30
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
