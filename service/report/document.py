"""What a report is made of, and its three formats: Markdown, one HTML page and LaTeX."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape as escape_html


@dataclass(frozen=True)
class Paragraph:
    """Plain text; symbols such as P_cross are set by each format in its own way."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """One sentence or more each."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Command:
    """Lines for a shell; those with a reason are not run by the test of documented commands."""

    lines: tuple[str, ...]
    not_run: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of text; `numeric` columns are set to the right."""

    name: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Picture:
    """A figure by the stem of its files; `words` stand for it where it cannot be seen."""

    stem: str
    caption: str
    words: str


Block = Paragraph | Bullets | Command | Table | Picture


@dataclass(frozen=True)
class Section:
    """A heading and what follows; level 1 is a suite's, 2 a part of it."""

    title: str
    level: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    summary: tuple[str, ...]
    sections: tuple[Section, ...]

    def tables(self) -> list[Table]:
        return [b for s in self.sections for b in s.blocks if isinstance(b, Table)]

    def pictures(self) -> list[Picture]:
        return [b for s in self.sections for b in s.blocks if isinstance(b, Picture)]


# An underscore inside a word, as in P_cross, means nothing in Markdown and stays.
_SPECIAL = re.compile(r"([\\`*\[\]<>|#]|(?<!\w)_|_(?!\w))")


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\1", text)


def markdown(document: Document, folder: str) -> str:
    """The document; pictures are in `folder`, relative to it."""
    parts = [
        f"# {escape_markdown(document.title)}",
        *(escape_markdown(text) for text in document.summary),
    ]
    for section in document.sections:
        parts.append(f"{'#' * (section.level + 1)} {escape_markdown(section.title)}")
        parts += [_markdown_block(block, folder) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def _markdown_block(block: Block, folder: str) -> str:
    match block:
        case Paragraph(text):
            return escape_markdown(text)
        case Bullets(items):
            return "\n".join(f"- {escape_markdown(item)}" for item in items)
        case Command(lines, not_run):
            marker = [f"<!-- not run: {not_run} -->"] if not_run else []
            return "\n".join([*marker, "```sh", *lines, "```"])
        case Picture(stem, caption, words):
            return (
                f"![{escape_markdown(words)}]({folder}/{stem}.svg)\n\n*{escape_markdown(caption)}*"
            )
        case Table():
            return _markdown_table(block)


def _markdown_table(table: Table) -> str:
    rule = ["---:" if i in table.numeric else "---" for i in range(len(table.header))]
    rows = [table.header, rule, *table.rows]
    lines = [
        "| " + " | ".join(cell if row is rule else escape_markdown(cell) for cell in row) + " |"
        for row in rows
    ]
    return f"*{escape_markdown(table.caption)}*\n\n" + "\n".join(lines)


LATEX_HEAD = """% Needs booktabs, graphicx, amsmath and longtable; \\input this file.
"""

_ESCAPED = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "[": "{[}",
    "]": "{]}",
    "<": r"$<$",
    ">": r"$>$",
    "–": "--",
    "−": "$-$",
    "·": r"$\cdot$",
    "×": r"$\times$",
    "÷": r"$\div$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "≈": r"$\approx$",
    "∞": r"$\infty$",
    "ρ": r"$\rho$",
    "τ": r"$\tau$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "γ": r"$\gamma$",
    "η": r"$\eta$",
    "κ": r"$\kappa$",
    "λ": r"$\lambda$",
    "Δ": r"$\Delta$",
    "²": r"$^2$",
    "₁": r"$_1$",
    "₀": r"$_0$",
    "’": "'",
} | {digit: f"$^{{{plain}}}$" for digit, plain in zip("⁻⁰¹³⁴⁵⁶⁷⁸⁹", "-013456789", strict=True)}
# P_cross, T_mem, K_mem, C_model …: a capital with an index.
_INDEXED = re.compile(r"\b([A-Z])_([a-z]+)\b")
_MARK = "\x00"


def latex(document: Document, folder: str) -> str:
    """All tables and figures in their order; figures are PDF files in `folder`."""
    parts = [LATEX_HEAD]
    for section in document.sections:
        for block in section.blocks:
            if isinstance(block, Table):
                parts.append(_latex_table(block))
            elif isinstance(block, Picture):
                parts.append(_latex_figure(block, folder))
    return "\n".join(parts)


def escape_latex(text: str) -> str:
    """Text in LaTeX; symbols such as P_cross become mathematics."""
    found: list[str] = []

    def keep(match: re.Match[str]) -> str:
        found.append(f"${match[1]}_{{\\text{{{match[2]}}}}}$")
        return _MARK

    marked = _INDEXED.sub(keep, text.replace(_MARK, ""))
    pieces = iter(found)
    return "".join(next(pieces) if c == _MARK else _ESCAPED.get(c, c) for c in marked)


def latex_label(name: str) -> str:
    """A label of letters, digits and hyphens."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")


def _latex_table(table: Table) -> str:
    columns = "".join("r" if i in table.numeric else "l" for i in range(len(table.header)))
    lines = [
        r"\begin{longtable}{" + columns + "}",
        rf"\caption{{{escape_latex(table.caption)}}}\label{{tab:{latex_label(table.name)}}}\\",
        r"\toprule",
        " & ".join(escape_latex(cell) for cell in table.header) + r" \\",
        r"\midrule\endhead",
        *(" & ".join(escape_latex(cell) for cell in row) + r" \\" for row in table.rows),
        r"\bottomrule",
        r"\end{longtable}",
        "",
    ]
    return "\n".join(lines)


def _latex_figure(picture: Picture, folder: str) -> str:
    return "\n".join(
        [
            r"\begin{figure}[t]",
            r"\centering",
            rf"\includegraphics[width=\linewidth]{{{folder}/{picture.stem}.pdf}}",
            rf"\caption{{{escape_latex(picture.caption)}}}\label{{fig:{latex_label(picture.stem)}}}",
            r"\end{figure}",
            "",
        ]
    )


STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --muted: #566171; --sunken: #f4f6f8; --bg: #fff;
  --link: #1f5d88; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e7ebf1; --muted: #a8b2bf; --sunken: #1e2530; --bg: #0f1319; --link: #6db5e8; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--bg);
  max-width: 62rem; margin: 2rem auto; padding: 0 1.25rem; }
a { color: var(--link); }
h1, h2, h3 { line-height: 1.2; margin: 2rem 0 0.75rem; }
figure { margin: 1.5rem 0; }
figure img { max-width: 100%; height: auto; background: #fff; border-radius: 6px; }
figcaption, caption { color: var(--muted); font-size: 0.9rem; text-align: left; padding: 0.4rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.88rem; margin: 0.75rem 0 1.5rem; }
th, td { padding: 0.25rem 0.7rem 0.25rem 0; text-align: left; vertical-align: top; }
thead th { border-bottom: 1px solid var(--ink); border-top: 2px solid var(--ink); }
tbody tr:last-child td { border-bottom: 2px solid var(--ink); }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
pre { background: var(--sunken); padding: 0.75rem 1rem; overflow-x: auto; }
@media print { body { max-width: none; margin: 0; } figure, table { break-inside: avoid; } }
"""


def webpage(document: Document, pictures: Mapping[str, bytes], home: str = "") -> str:
    """The document with its pictures (SVG by stem) inside; a served one leads back `home`."""
    body = [
        *([f'<p><a href="{escape_html(home)}">groktime</a></p>'] if home else []),
        f"<h1>{_html_text(document.title)}</h1>",
        *(f"<p>{_html_text(t)}</p>" for t in document.summary),
    ]
    for section in document.sections:
        level = section.level + 1
        body.append(f"<h{level}>{_html_text(section.title)}</h{level}>")
        body += [_html_block(block, pictures) for block in section.blocks]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            '<head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape_html(document.title)}</title>",
            f"<style>{STYLE}</style></head>",
            "<body>",
            *body,
            "</body></html>\n",
        ]
    )


def _html_text(text: str) -> str:
    return _INDEXED.sub(r"\1<sub>\2</sub>", escape_html(text))


def _html_block(block: Block, pictures: Mapping[str, bytes]) -> str:
    match block:
        case Paragraph(text):
            return f"<p>{_html_text(text)}</p>"
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{_html_text(item)}</li>" for item in items) + "</ul>"
        case Command(lines):
            return "<pre>" + escape_html("\n".join(lines)) + "</pre>"
        case Picture(stem, caption, words):
            source = base64.b64encode(pictures[stem]).decode()
            return (
                f'<figure><img alt="{escape_html(words)}" '
                f'src="data:image/svg+xml;base64,{source}">'
                f"<figcaption>{_html_text(caption)}</figcaption></figure>"
            )
        case Table():
            return _html_table(block)


def _html_table(table: Table) -> str:
    def row(cells: tuple[str, ...], tag: str) -> str:
        kinds = (' class="n"' if i in table.numeric else "" for i in range(len(cells)))
        inner = (f"<{tag}{k}>{_html_text(c)}</{tag}>" for c, k in zip(cells, kinds, strict=True))
        return f"<tr>{''.join(inner)}</tr>"

    body = "\n".join(row(cells, "td") for cells in table.rows)
    return (
        f'<div class="wide"><table><caption>{_html_text(table.caption)}</caption>'
        f"<thead>{row(table.header, 'th')}</thead>\n<tbody>{body}</tbody></table></div>"
    )
