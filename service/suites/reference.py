"""The reference of the suite file (docs/suites.md), written from its schema.

python -m groktime.service.suites.reference > docs/suites.md
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from groktime.service.suites.schema import (
    Analysis,
    Block,
    CapacityBlock,
    Design,
    Inheritance,
    StopRule,
    SuiteFile,
    Thresholds,
)
from groktime.service.suites.values import Setting

EXAMPLE = """\
# my.yaml
description: Does addition cross where division does?   # one line, at most 80 characters
operation: addition          # or +; the default is division
primes: [59, 61]             # each is a cell of its own
seeds: {from: 42, to: 44}    # both ends included
settings: {batch_size: 128}  # anything under Settings, for all runs
stop: {max_epochs: 1000}     # runs that take longer are censored there
speed:                       # random labels: how fast is memorising?
  widths: [24, 28, 32, 40, 48]
grok:                        # the task: how fast is generalising, and is it delayed?
  widths: [24, 28, 32, 40, 48]
"""

SECTIONS: Mapping[str, type[BaseModel]] = {
    "The file": SuiteFile,
    "Settings": Setting,
    "`speed`, `grok`: a block": Block,
    "`capacity`: a block": CapacityBlock,
    "`design`": Design,
    "`stop`": StopRule,
    "`inherits`: an entry": Inheritance,
    "`analysis`": Analysis,
    "`analysis.thresholds`": Thresholds,
}


def suite_reference() -> str:
    """The whole page."""
    parts = [
        "# Suite files\n",
        "<!-- Written by python -m groktime.service.suites.reference; do not edit. -->\n",
        "A suite is a YAML file: primes × seeds × swept settings × widths. Name it anything but a\n"
        "shipped suite:\n",
        f"```yaml\n{EXAMPLE}```\n",
        "```sh\ngroktime suite check my.yaml    # wrong fields are named with their line\n"
        "groktime suite show my.yaml     # runs and hours on this machine\n```\n",
        "<!-- not run: it trains for minutes -->\n```sh\ngroktime sweep my.yaml\n```\n",
        "Numbers are lists (`[20, 24, 28]`), spans (`{from: 20, to: 28, step: 4}`) or lists of "
        "both.\n",
    ]
    for title, model in SECTIONS.items():
        parts += [f"## {title}\n", _table(model)]
    return "\n".join(parts)


def _table(model: type[BaseModel]) -> str:
    rows = ["| field | values | default | meaning |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        if model is CapacityBlock and name in Block.model_fields:
            continue
        cells = (f"`{name}`", _values(field.annotation), _default(field), field.description or "")
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _values(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _values(get_args(annotation)[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    if origin in (Union, types.UnionType):
        inner = [a for a in get_args(annotation) if a is not type(None)]
        return ", ".join(dict.fromkeys(_values(a) for a in inner))
    if origin is tuple:
        args = [a for a in get_args(annotation) if a is not Ellipsis]
        inner_text = _values(args[0])
        return f"list of {inner_text}" if "block" not in inner_text else inner_text
    if origin is dict:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    names = {int: "whole number", float: "number", str: "text", bool: "`true`, `false`"}
    return names.get(annotation, str(annotation))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value in ("", (), {}) or isinstance(value, BaseModel):
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple) and len(value) > 8:
        return f"`{{from: {value[0]}, to: {value[-1]}, step: {value[1] - value[0]}}}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{value}`"


if __name__ == "__main__":
    sys.stdout.write(suite_reference())
