"""The three formats show any text as it is, and none lets text become markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groktime.service.report.document import (
    Bullets,
    Command,
    Document,
    Paragraph,
    Picture,
    Section,
    Table,
    escape_latex,
    escape_markdown,
    latex,
    markdown,
    webpage,
)
from groktime.service.report.drawings import slug

HOSTILE = "<script>alert(1)</script> | `x` *b* [l](u) $x_1$ & 5 % #1 {a} \\end{table} ~ ^"


def document(text: str) -> Document:
    table = Table("t", text, ("p", text), ((text, "1"),), frozenset({1}))
    blocks = (Paragraph(text), Bullets((text,)), Command(("groktime verify",)), table)
    return Document(text, (text,), (Section(text, 1, (*blocks, Picture("stem", text, text))),))


class Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_hostile_text_stays_text_in_the_page() -> None:
    page = Words()
    page.feed(webpage(document(HOSTILE), {"stem": b"<svg/>"}))
    assert "script" not in page.tags
    assert HOSTILE in page.text


def test_hostile_text_does_not_break_a_markdown_table() -> None:
    text = markdown(document(HOSTILE), "figures")
    (row,) = [line for line in text.splitlines() if line.endswith("| 1 |")]
    assert len(re.split(r"(?<!\\)\|", row)) == 4
    assert "<script>" not in re.sub(r"\\.", "", text)


def test_hostile_text_does_not_end_a_latex_table() -> None:
    text = latex(document(HOSTILE), "figures")
    assert text.count(r"\end{longtable}") == 1
    assert r"\end{table}" not in text
    (row,) = [line for line in text.splitlines() if line.endswith(r"& 1 \\")]
    assert len(re.split(r"(?<!\\)&", row)) == 2


def test_symbols_are_set_in_each_format() -> None:
    assert escape_markdown("P_cross") == "P_cross"
    assert escape_latex("P_cross ≤ 5 %") == r"$P_{\text{cross}}$ $\le$ 5 \%"
    page = webpage(document("K_mem"), {"stem": b""})
    assert "K<sub>mem</sub>" in page


@given(st.text(max_size=60))
@settings(max_examples=60)
def test_a_slug_is_never_a_path(text: str) -> None:
    found = slug(text)
    assert re.fullmatch(r"[a-z0-9][a-z0-9.-]*", found)
    assert not found.startswith(".")
    assert "/" not in found


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), max_size=40))
@settings(max_examples=60)
def test_latex_braces_balance_whatever_the_text(text: str) -> None:
    plain = re.sub(r"\\[{}]", "", escape_latex(text))
    assert plain.count("{") == plain.count("}")


@pytest.mark.parametrize(("text", "kept"), [("a_b", "a_b"), ("_a", r"\_a"), ("a_ b", r"a\_ b")])
def test_only_underscores_that_would_emphasise_are_escaped(text: str, kept: str) -> None:
    assert escape_markdown(text) == kept
