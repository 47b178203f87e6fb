"""Logs are structured and carry no passwords."""

from __future__ import annotations

import json
import logging

from groktime.service.logs import JsonFormatter, TextFormatter, redact


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"msg": message, "name": "db", "levelname": "INFO"})
    vars(made).update(extra)
    return made


def test_json_lines_carry_the_extra_fields() -> None:
    entry = json.loads(JsonFormatter().format(record("flushed", rows=5000)))
    assert (entry["message"], entry["rows"], entry["level"]) == ("flushed", 5000, "info")


def test_text_lines_carry_the_extra_fields() -> None:
    assert TextFormatter().format(record("flushed", rows=5000)).endswith("flushed  rows=5000")


def test_passwords_in_urls_never_reach_a_log() -> None:
    url = "postgresql+psycopg2://me:s3cret@db.example:5432/groktime?sslmode=require"
    for formatter in (TextFormatter(), JsonFormatter()):
        assert "s3cret" not in formatter.format(record(f"connected to {url}", target=url))
    assert redact(url).startswith("postgresql+psycopg2://me:***@db.example")
