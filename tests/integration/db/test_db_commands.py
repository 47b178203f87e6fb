"""`groktime db` and `groktime export`, as a user types them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from fixtures.curves import record_all
from fixtures.database import Database
from fixtures.runs import claim_all, grok_spec
from sqlalchemy import make_url, text
from typer.testing import CliRunner

from groktime.db import embedded
from groktime.db.claims import claim
from groktime.db.suites import open_runs, register_suite
from groktime.service.commands.db import app
from groktime.service.commands.export import export
from groktime.service.commands.serve import RECORDINGS
from groktime.service.errors import ConfigurationError, DatabaseError, DumpError, InputError
from groktime.service.settings import get_settings
from groktime.service.suites import load_suite

app_of_export = typer.Typer()
app_of_export.command()(export)


@pytest.fixture
def served(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """The settings name this test's database, which holds a suite of two runs."""
    record_all(database.engine, claim_all(database.engine, [grok_spec(seed=1), grok_spec(seed=2)]))
    monkeypatch.setenv("GROKTIME_DATABASE_URL", database.url)
    get_settings.cache_clear()
    yield database
    get_settings.cache_clear()


def run(*arguments: str, answer: str | None = None, of: typer.Typer = app) -> str:
    """What the command prints when it succeeds."""
    result = CliRunner().invoke(of, list(arguments), input=answer, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def runs(database: Database) -> int | None:
    with database.engine.connect() as connection:
        return connection.scalar(text("SELECT count(*) FROM runs"))


def test_up_and_migrate_leave_a_current_database_as_it_is(served: Database) -> None:
    assert served.name in run("up")
    assert "schema" in run("migrate")
    assert runs(served) == 2


def test_url_can_be_given_to_psql(served: Database) -> None:
    printed = run("url").strip()
    assert make_url(printed).drivername == "postgresql"
    assert make_url(printed).database == served.name


def test_a_server_that_groktime_did_not_start_is_not_stopped(served: Database) -> None:
    with pytest.raises(ConfigurationError, match="did not start"):
        run("down")


def test_a_suite_can_be_dumped_pruned_and_loaded_again(served: Database, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "description: two runs\nprimes: [11]\nseeds: [1, 2]\npositions: none\ngrok: {widths: [8]}\n"
    )
    suite = load_suite(tmp_path / "mine.yaml")
    definition = (suite.name, suite.stored(), suite.digest, suite.runs())
    ids = open_runs(served.engine, register_suite(served.engine, *definition).suite_id)
    record_all(served.engine, claim(served.engine, list(ids.values()), "test", 60))
    file = str(tmp_path / "mine.dump")
    dumped = json.loads(run("dump", "mine", file, "--json"))
    assert dumped["runs"] == 2
    with pytest.raises(DumpError, match="--force"):
        run("dump", "mine", file)
    run("dump", "mine", file, "--force")
    assert "2 runs that only suite mine has" in run("prune", "mine", answer="y\n")
    assert runs(served) == 2
    first, second = run("load", file, file, "--json").splitlines()
    assert (json.loads(first)["taken"], json.loads(second)["taken"]) == (2, 0)
    assert run("load", file) == "suite mine: nothing new\n"
    assert "sound" in run("check")


def test_loading_starts_the_embedded_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROKTIME_DATABASE_URL", raising=False)
    with tempfile.TemporaryDirectory(prefix="gt-", dir="/tmp") as home:  # short: it has a socket
        monkeypatch.setenv("GROKTIME_HOME", home)
        get_settings.cache_clear()
        try:
            loaded = run("load", str(RECORDINGS / "central-two-cores.groktime"))
            assert loaded.startswith("suite central-two-cores: results of ")
            assert "stopped" in run("down")
        finally:
            embedded.stop(Path(home))
            get_settings.cache_clear()


def test_pruning_asks_first(served: Database) -> None:
    result = CliRunner().invoke(app, ["prune", "little"], input="n\n")
    assert result.exit_code == 1
    assert runs(served) == 2


def test_what_a_frozen_suite_found_is_not_pruned_by_the_way(served: Database) -> None:
    with served.engine.begin() as connection:
        connection.execute(text("UPDATE suites SET frozen_at = now()"))
    with pytest.raises(DatabaseError, match="little is frozen"):
        run("prune", "little", "--yes")
    assert runs(served) == 2
    assert "deleted 2 runs" in run("prune", "little", "--yes", "--frozen")


def test_check_fails_on_damage(served: Database) -> None:
    with served.engine.begin() as connection:
        connection.execute(text("DELETE FROM curve WHERE epoch = 3"))
    result = CliRunner().invoke(app, ["check", "--json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["findings"][0]["check"] == "gaps"


def test_export_writes_the_files_it_names(served: Database, tmp_path: Path) -> None:
    printed = run("little", "--to", str(tmp_path), "--curves", of=app_of_export)
    assert [Path(line).exists() for line in printed.split()] == [True, True, True]
    with pytest.raises(InputError, match="format: 'xls'"):
        run("little", "--to", str(tmp_path), "--format", "xls", of=app_of_export)
