"""A suite file with any mistake in it is a suite, or is refused in one line; never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groktime.service.errors import SuiteError
from groktime.service.suites import load_suite
from groktime.service.suites.loader import SHIPPED

SOURCES = [path.read_text("utf-8") for path in sorted(SHIPPED.glob("*.yaml"))]
# What tends to break readers of YAML, of numbers and of names.
PIECES = [
    *(
        "",
        " ",
        "\n",
        "\t",
        ":",
        "- ",
        "[",
        "]",
        "{",
        "}",
        "#",
        "|",
        ">-",
        "&a ",
        "*a",
        "<<: ",
        "!!",
    ),
    *("!!python/object/apply:os.getcwd []", "null", "true", "0", "-1", "1e999", ".nan", "0x10"),
    *("9" * 30, "1_000", "2001-01-01", "../../etc/passwd", "\u0000", "\ufeff", "\U0001f600", "'"),
    *('"', "from: 1, to: 10000000", "steps: 0", "%TAG", "---\n", "...\n", "[" * 30),
]


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A shipped suite with some places of it replaced, doubled or taken out."""
    text = draw(st.sampled_from(SOURCES))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        how = draw(st.sampled_from(["replace", "double", "swap lines"]))
        if how == "replace":
            piece = draw(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)))
            text = text[:start] + piece + text[end:]
        elif how == "double":
            text = text[:end] + text[start:end] + text[end:]
        else:
            lines = text.splitlines(keepends=True)
            lines.insert(draw(st.integers(0, len(lines))), draw(st.sampled_from(lines or [""])))
            text = "".join(lines)
    return text


@given(mutated())
@settings(max_examples=150)
def test_a_mutated_file_is_a_suite_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.mktemp("mutated") / "mine.yaml"
    path.write_text(text, "utf-8", errors="surrogatepass", newline="")
    check(path)


@given(st.binary(max_size=200))
@settings(max_examples=100)
def test_bytes_that_are_no_text_are_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("bytes") / "mine.yaml"
    path.write_bytes(content)
    check(path)


def check(path: Path) -> None:
    """Load it; all that may be raised is a SuiteError of one line."""
    try:
        suite = load_suite(path)
    except SuiteError as refusal:
        said = str(refusal)
    else:
        said = suite.name
    assert said
    assert "\n" not in said
