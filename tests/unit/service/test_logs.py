"""Logs are structured and carry no passwords."""

from __future__ import annotations

import io
import json
import logging

import pytest

from groktime.service.logs import JsonFormatter, StandardError, TextFormatter, redact


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"msg": message, "name": "db", "levelname": "INFO"})
    vars(made).update(extra)
    return made


def test_json_lines_carry_the_extra_fields() -> None:
    entry = json.loads(JsonFormatter().format(record("flushed", rows=5000)))
    assert (entry["message"], entry["rows"], entry["level"]) == ("flushed", 5000, "info")


def test_text_lines_carry_the_extra_fields() -> None:
    assert TextFormatter().format(record("flushed", rows=5000)).endswith("flushed  rows=5000")


def test_lines_go_to_standard_error_as_it_is_when_they_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = io.StringIO(), io.StringIO()
    monkeypatch.setattr("sys.stderr", first)
    handler = StandardError()
    handler.emit(record("early"))
    monkeypatch.setattr("sys.stderr", second)
    first.close()
    handler.emit(record("late"))
    assert second.getvalue() == "late\n"


def test_passwords_in_urls_never_reach_a_log() -> None:
    url = "postgresql+psycopg2://me:s3cret@db.example:5432/groktime?sslmode=require"
    for formatter in (TextFormatter(), JsonFormatter()):
        assert "s3cret" not in formatter.format(record(f"connected to {url}", target=url))
    assert redact(url).startswith("postgresql+psycopg2://me:***@db.example")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3/cret@db/groktime",
        "postgresql://me:s3@cret@db/groktime",
        "postgresql://:s3cret@db/groktime",
        "postgresql://db/groktime?user=me&password=s3cret",
        "dbname=groktime password=s3cret host=db",
    ],
)
def test_a_password_in_any_spelling_is_hidden(url: str) -> None:
    hidden = redact(f"cannot reach {url}, try again")
    assert "s3" not in hidden
    assert "cret" not in hidden
    assert hidden.endswith("try again")


def test_addresses_without_a_password_stay_as_they_are() -> None:
    for text in ("http://127.0.0.1:8000/docs", "write to me@example.org", "a: b@c"):
        assert redact(text) == text


@pytest.mark.parametrize("text", ["a" * 2_000_000, "://" * 100_000, "://a:" * 20_000])
def test_a_hostile_text_is_looked_through_in_one_pass(text: str) -> None:
    assert redact(text) == text  # a pattern that tries each beginning anew would not end
