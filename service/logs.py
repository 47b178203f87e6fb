"""Structured logging: text for people, one JSON object a line for collectors."""

from __future__ import annotations

import json
import logging
import re
import sys
from typing import Any, TextIO

# Whatever looks like a URL with a password loses it before it is written anywhere.
# Passwords may hold / and @; the bounds keep a hostile text from taking long.
_PASSWORD = re.compile(r"(://[^:/@\s]{0,250}):\S{1,1000}@")
_PARAMETER = re.compile(r"(password=)[^&\s'\"]+", re.IGNORECASE)
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def redact(text: str) -> str:
    """The text with passwords in URLs replaced by stars."""
    return _PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1:***@", text))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """What the caller gave as extra; names with an underscore are libraries' own, such as Ray's."""
    return {
        name: value
        for name, value in vars(record).items()
        if name not in _STANDARD and not name.startswith("_")
    }


class TextFormatter(logging.Formatter):
    """`12:30:01 info  groktime.db.recorder  message  key=value`."""

    def format(self, record: logging.LogRecord) -> str:
        clock = self.formatTime(record, "%H:%M:%S")
        line = f"{clock} {record.levelname.lower():<7} {record.name}  {record.getMessage()}"
        line += "".join(f"  {name}={value}" for name, value in _fields(record).items())
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return redact(line)


class JsonFormatter(logging.Formatter):
    """One object a line with time, level, logger, message and the extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return redact(json.dumps(entry, default=str))


class StandardError(logging.StreamHandler[TextIO]):
    """Standard error as it is when a line is written, since callers and tests replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def configure_logging(level: str = "info", form: str = "text") -> None:
    """Send the project's logs to standard error; other libraries only when they warn."""
    handler = StandardError()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("groktime").setLevel(level.upper())
