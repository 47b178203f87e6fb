"""A report as one HTML file: no script, no link to anything outside."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from html import escape as escape_html

from service.report.document import Block, Bullets, Command, Document, Paragraph, Picture, Table

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2430; max-width: 62rem; margin: 2rem auto;
  padding: 0 1.25rem; }
h1, h2, h3 { line-height: 1.2; margin: 2rem 0 0.75rem; }
figure { margin: 1.5rem 0; } figure img { max-width: 100%; height: auto; }
figcaption, caption { color: #5b6675; font-size: 0.9rem; text-align: left; padding: 0.4rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.88rem; margin: 0.75rem 0 1.5rem; }
th, td { padding: 0.25rem 0.7rem 0.25rem 0; text-align: left; vertical-align: top; }
thead th { border-bottom: 1px solid #1c2430; border-top: 2px solid #1c2430; }
tbody tr:last-child td { border-bottom: 2px solid #1c2430; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
pre { background: #f4f6f8; padding: 0.75rem 1rem; overflow-x: auto; }
@media print { body { max-width: none; margin: 0; } figure, table { break-inside: avoid; } }
"""

# P_cross, T_mem, K_mem, C_model, log₁₀ …: a capital with an index.
_INDEXED = re.compile(r"\b([A-Z])_([a-z]+)\b")


def webpage(document: Document, pictures: Mapping[str, bytes]) -> str:
    """The document with its pictures (SVG by stem) inside."""
    body = [f"<h1>{_text(document.title)}</h1>", *(f"<p>{_text(t)}</p>" for t in document.summary)]
    for section in document.sections:
        level = section.level + 1
        body.append(f"<h{level}>{_text(section.title)}</h{level}>")
        body += [_block(block, pictures) for block in section.blocks]
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


def _text(text: str) -> str:
    return _INDEXED.sub(r"\1<sub>\2</sub>", escape_html(text))


def _block(block: Block, pictures: Mapping[str, bytes]) -> str:
    match block:
        case Paragraph(text):
            return f"<p>{_text(text)}</p>"
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{_text(item)}</li>" for item in items) + "</ul>"
        case Command(lines):
            return "<pre>" + escape_html("\n".join(lines)) + "</pre>"
        case Picture(stem, caption, words):
            source = base64.b64encode(pictures[stem]).decode()
            return (
                f'<figure><img alt="{escape_html(words)}" '
                f'src="data:image/svg+xml;base64,{source}">'
                f"<figcaption>{_text(caption)}</figcaption></figure>"
            )
        case Table():
            return _table(block)


def _table(table: Table) -> str:
    def row(cells: tuple[str, ...], tag: str) -> str:
        kinds = (' class="n"' if i in table.numeric else "" for i in range(len(cells)))
        inner = (f"<{tag}{k}>{_text(c)}</{tag}>" for c, k in zip(cells, kinds, strict=True))
        return f"<tr>{''.join(inner)}</tr>"

    body = "\n".join(row(cells, "td") for cells in table.rows)
    return (
        f'<div class="wide"><table><caption>{_text(table.caption)}</caption>'
        f"<thead>{row(table.header, 'th')}</thead>\n<tbody>{body}</tbody></table></div>"
    )
