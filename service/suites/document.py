"""Reading a suite file as data that remembers its lines, without YAML's surprises.

Only plain mappings, lists and scalars are accepted: no tags, no anchors (a few lines of them
can unfold into gigabytes), no repeated keys. Numbers follow YAML 1.2, so `1e-3` is a number
and `no` a word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from groktime.service.errors import SuiteError

MAX_BYTES = 256 * 1024
MAX_NODES = 50_000
MAX_NESTING = 20

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """Parsed content and the line, counted from 1, at which each path begins."""

    source: str
    content: Any
    lines: dict[Path, int]

    def line(self, path: Path) -> int | None:
        """Line of the deepest part of the path that the file contains."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return None

    def error(self, path: Path, message: str) -> SuiteError:
        """An error that names the file, the line where it can, and the field."""
        line = self.line(path)
        where = self.source if line is None else f"{self.source}, line {line}"
        field = field_name(path)
        return SuiteError(f"{where}: {field}: {message}" if field else f"{where}: {message}")


def field_name(path: Path) -> str:
    """`speed.widths[3]` for ("speed", "widths", 3)."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


class _Loader(yaml.SafeLoader):
    """A loader that knows numbers, booleans and null in their YAML 1.2 spellings only."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


_DIGITS = list("-+0123456789")
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(null|~|)$"), ["n", "~", ""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|false)$"), ["t", "f"])
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(0|[1-9][0-9]{0,17})$"), _DIGITS
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$"),
    [*_DIGITS, "."],
)


def parse(text: str, source: str) -> Document:
    """Parse one suite file; `source` is how messages call it."""
    if len(text.encode()) > MAX_BYTES:
        raise SuiteError(f"{source}: larger than {MAX_BYTES // 1024} KB; a suite is a small file")
    loader = None
    try:
        loader = _Loader(text)  # refuses characters that no text has
        _refuse_anchors(text, source)
        root = loader.get_single_node()
        if root is None:
            raise SuiteError(f"{source}: is empty; a suite is a mapping of fields")
        lines: dict[Path, int] = {}
        content = _value(loader, root, (), lines, source)
    except yaml.YAMLError as problem:
        raise SuiteError(_yaml_message(problem, source)) from None
    finally:
        if loader is not None:
            loader.dispose()
    return Document(source, content, lines)


def _refuse_anchors(text: str, source: str) -> None:
    """Walk the events, which unfold nothing, before any node is built."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_Loader)):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise SuiteError(f"{source}, line {line}: anchors and aliases are not accepted")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_NESTING:
            raise SuiteError(f"{source}, line {line}: nested deeper than {MAX_NESTING} levels")
        if count > 2 * MAX_NODES:
            raise SuiteError(f"{source}: more than {MAX_NODES} values; a suite is a small file")


def _yaml_message(problem: yaml.YAMLError, source: str) -> str:
    mark = getattr(problem, "problem_mark", None)
    what = getattr(problem, "problem", None) or getattr(problem, "reason", None) or str(problem)
    where = source if mark is None else f"{source}, line {mark.line + 1}"
    return f"{where}: not valid YAML: {' '.join(str(what).split())}"


def _value(
    loader: _Loader, node: yaml.Node, path: Path, lines: dict[Path, int], source: str
) -> Any:
    line = node.start_mark.line + 1
    lines.setdefault(path, line)
    if isinstance(node, yaml.SequenceNode):
        return [
            _value(loader, child, (*path, index), lines, source)
            for index, child in enumerate(node.value)
        ]
    if isinstance(node, yaml.MappingNode):
        content: dict[str, Any] = {}
        for key_node, child in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            at = key_node.start_mark.line + 1
            if key is None:
                raise SuiteError(f"{source}, line {at}: keys are plain words")
            if key in content:
                raise SuiteError(f"{source}, line {at}: {key}: is given twice")
            lines[(*path, key)] = at
            content[key] = _value(loader, child, (*path, key), lines, source)
        return content
    if node.tag not in _SCALARS:
        raise SuiteError(f"{source}, line {line}: tag {node.tag!r} is not accepted")
    return loader.construct_object(node)


_SCALARS = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str")}
