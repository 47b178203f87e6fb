"""A report's tables and figures as LaTeX, to be put into a paper with \\input."""

from __future__ import annotations

import re

from service.report.document import Document, Picture, Table

HEAD = """% Needs booktabs, graphicx, amsmath and longtable; \\input this file into a document.
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
    "Δ": r"$\Delta$",
    "²": r"$^2$",
    "₁": r"$_1$",
    "₀": r"$_0$",
    "’": "'",
} | {digit: f"$^{{{plain}}}$" for digit, plain in zip("⁻⁰¹³⁴⁵⁶⁷⁸⁹", "-013456789", strict=True)}
_INDEXED = re.compile(r"\b([A-Z])_([a-z]+)\b")
_MARK = "\x00"


def latex(document: Document, folder: str) -> str:
    """All tables and figures in their order; figures are PDF files in `folder`."""
    parts = [HEAD]
    for section in document.sections:
        for block in section.blocks:
            if isinstance(block, Table):
                parts.append(_table(block))
            elif isinstance(block, Picture):
                parts.append(_figure(block, folder))
    return "\n".join(parts)


def escape(text: str) -> str:
    """Text in LaTeX; symbols such as P_cross become mathematics."""
    found: list[str] = []

    def keep(match: re.Match[str]) -> str:
        found.append(f"${match[1]}_{{\\text{{{match[2]}}}}}$")
        return _MARK

    marked = _INDEXED.sub(keep, text.replace(_MARK, ""))
    pieces = iter(found)
    return "".join(next(pieces) if c == _MARK else _ESCAPED.get(c, c) for c in marked)


def label(name: str) -> str:
    """A label of letters, digits and hyphens."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")


def _table(table: Table) -> str:
    columns = "".join("r" if i in table.numeric else "l" for i in range(len(table.header)))
    lines = [
        r"\begin{longtable}{" + columns + "}",
        rf"\caption{{{escape(table.caption)}}}\label{{tab:{label(table.name)}}}\\",
        r"\toprule",
        " & ".join(escape(cell) for cell in table.header) + r" \\",
        r"\midrule\endhead",
        *(" & ".join(escape(cell) for cell in row) + r" \\" for row in table.rows),
        r"\bottomrule",
        r"\end{longtable}",
        "",
    ]
    return "\n".join(lines)


def _figure(picture: Picture, folder: str) -> str:
    return "\n".join(
        [
            r"\begin{figure}[t]",
            r"\centering",
            rf"\includegraphics[width=\linewidth]{{{folder}/{picture.stem}.pdf}}",
            rf"\caption{{{escape(picture.caption)}}}\label{{fig:{label(picture.stem)}}}",
            r"\end{figure}",
            "",
        ]
    )
