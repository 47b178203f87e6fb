"""URLs: what is accepted, what is shown, and what only this machine can use."""

from __future__ import annotations

from pathlib import Path

import pytest

from groktime.db.embedded import url
from groktime.db.engine import database_url, is_local, parse_url, shown
from groktime.service.errors import ConfigurationError
from groktime.service.settings import Settings


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg2"])
def test_the_usual_spellings_are_accepted(scheme: str) -> None:
    assert parse_url(f"{scheme}://u@h/d").drivername == "postgresql+psycopg2"


def test_other_databases_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="'sqlite'; accepted: postgresql://"):
        parse_url("sqlite:///file")


def test_what_is_no_url_is_refused_without_repeating_it() -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_url("hunter2 is my password")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://u:hunter2@h/d",
        "postgresql://u@h/d?password=hunter2",
        "postgresql://u@h/d?sslmode=require&sslpassword=hunter2",
    ],
)
def test_a_shown_url_hides_every_secret(text: str) -> None:
    assert "hunter2" not in shown(text)
    assert shown(text).startswith("postgresql://u")


def test_tls_parameters_stay_in_the_url() -> None:
    parsed = parse_url("postgresql://u@h/d?sslmode=verify-full&sslrootcert=/ca.pem")
    assert parsed.query == {"sslmode": "verify-full", "sslrootcert": "/ca.pem"}


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("postgresql://u@/d?host=/var/lib/groktime/pg", True),
        ("postgresql://u@127.0.0.1/d", True),
        ("postgresql://u@localhost:5433/d", True),
        ("postgresql://u@db.example/d", False),
        ("postgresql://u@/d?host=db.example", False),
        ("postgresql://u@/d?host=localhost&host=db.example", False),
    ],
)
def test_local_urls_are_those_no_other_machine_can_use(text: str, local: bool) -> None:
    assert is_local(text) is local


def test_each_role_has_its_url_and_falls_back_to_the_owners() -> None:
    settings = Settings(
        database_url="postgresql://owner@h/d",  # type: ignore[arg-type]
        reader_url="postgresql://reader@h/d",  # type: ignore[arg-type]
    )
    assert "owner" in database_url("owner", settings)
    assert "owner" in database_url("writer", settings)
    assert "reader" in database_url("reader", settings)


def test_without_a_url_the_embedded_servers_is_used(tmp_path: Path) -> None:
    settings = Settings(home=Path("/srv/g"), database_url=None)
    assert database_url("owner", settings) == url(Path("/srv/g"))


def test_a_home_too_long_for_a_socket_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"GROKTIME_HOME = .* too long .* shorter path"):
        url(Path("/" + "long/" * 30))
