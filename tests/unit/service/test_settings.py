"""Settings come from GROKTIME_* variables and never show a secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from groktime.service.settings import Settings


def test_variables_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GROKTIME_HOME", str(tmp_path))
    monkeypatch.setenv("GROKTIME_PORT", "8123")
    settings = Settings()
    assert settings.port == 8123
    assert settings.checkpoint_dir == tmp_path / "checkpoints"


def test_secrets_are_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROKTIME_DATABASE_URL", "postgresql://me:hunter2@db/groktime")
    monkeypatch.setenv("GROKTIME_API_TOKEN", "hunter3")
    shown = repr(Settings()) + str(Settings()) + Settings().model_dump_json()
    assert "hunter" not in shown


def test_relative_paths_are_refused_because_ray_changes_the_working_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GROKTIME_HOME", "somewhere")
    with pytest.raises(ValidationError, match="absolute"):
        Settings()


def test_every_setting_is_described() -> None:
    undescribed = [name for name, field in Settings.model_fields.items() if not field.description]
    assert undescribed == []


def test_checkpoints_may_lie_in_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROKTIME_CHECKPOINTS", "s3://bucket/groktime")
    assert Settings().checkpoint_dir == "s3://bucket/groktime"
    monkeypatch.setenv("GROKTIME_CHECKPOINTS", "not/absolute")
    with pytest.raises(ValueError, match="must be an absolute path"):
        Settings()


def test_the_url_is_read_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("postgresql://me:s3cret@db/groktime\n")
    monkeypatch.setenv("GROKTIME_DATABASE_URL_FILE", str(file))
    url = Settings().database_url
    assert url is not None
    assert url.get_secret_value() == "postgresql://me:s3cret@db/groktime"


@pytest.mark.parametrize("content", [b"", b" \n", b"x" * 10_000, b"\xff\xfe\x00"])
def test_a_file_that_holds_no_url_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "url"
    file.write_bytes(content)
    monkeypatch.setenv("GROKTIME_DATABASE_URL_FILE", str(file))
    with pytest.raises(ValidationError, match="GROKTIME_DATABASE_URL_FILE"):
        Settings()


def test_a_file_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROKTIME_DATABASE_URL_FILE", "/dev/zero")
    with pytest.raises(ValidationError, match="the URL and nothing else"):
        Settings()
