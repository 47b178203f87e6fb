"""A report as Markdown, pictures beside it."""

from __future__ import annotations

import re

from service.report.document import Block, Bullets, Command, Document, Paragraph, Picture, Table

# An underscore inside a word, as in P_cross, means nothing in Markdown and stays.
_SPECIAL = re.compile(r"([\\`*\[\]<>|#]|(?<!\w)_|_(?!\w))")


def escape(text: str) -> str:
    """Text that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\1", text)


def markdown(document: Document, folder: str) -> str:
    """The document; pictures are in `folder`, relative to it."""
    parts = [f"# {escape(document.title)}", *(escape(text) for text in document.summary)]
    for section in document.sections:
        parts.append(f"{'#' * (section.level + 1)} {escape(section.title)}")
        parts += [_block(block, folder) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def _block(block: Block, folder: str) -> str:
    match block:
        case Paragraph(text):
            return escape(text)
        case Bullets(items):
            return "\n".join(f"- {escape(item)}" for item in items)
        case Command(lines):
            return "\n".join(["```sh", *lines, "```"])
        case Picture(stem, caption, words):
            return f"![{escape(words)}]({folder}/{stem}.svg)\n\n*{escape(caption)}*"
        case Table():
            return _table(block)


def _table(table: Table) -> str:
    rule = ["---:" if i in table.numeric else "---" for i in range(len(table.header))]
    rows = [table.header, rule, *table.rows]
    lines = [
        "| " + " | ".join(cell if row is rule else escape(cell) for cell in row) + " |"
        for row in rows
    ]
    return f"*{escape(table.caption)}*\n\n" + "\n".join(lines)
