"""What a report is made of, before it is Markdown, HTML or LaTeX."""

from __future__ import annotations

from dataclasses import dataclass


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
    """Lines for a shell."""

    lines: tuple[str, ...]


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
