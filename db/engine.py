"""Engines per role: the owner migrates, writers record, readers ask and cannot write.

What a role may do is set at the beginning of every transaction and ends with it: nothing is left
in the session, which behind PgBouncer in transaction mode is the next client's.
"""

from __future__ import annotations

from typing import Any, Literal

import psycopg2.extensions
from pydantic import SecretStr
from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, OperationalError, ProgrammingError
from sqlalchemy.pool import NullPool

from groktime.db import embedded
from groktime.db.migrate import migrate, require_current
from groktime.service.errors import ConfigurationError, DatabaseError
from groktime.service.settings import Settings, get_settings

Role = Literal["owner", "writer", "reader"]

CONNECT_SECONDS = 10
READER_STATEMENT_SECONDS = 60
# A server that vanished without a word is noticed within a minute.
KEEPALIVES = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
SECRET_PARAMETERS = ("password", "sslpassword")

# Takes the group role where this login may and the migration could create it; a login that is
# itself a restricted one stays what it is. Since PostgreSQL 16 a member need not be one that may
# take the role: whoever creates a role without being superuser is not.
TAKE_ROLE = """
(SELECT set_config('role', rolname, true) FROM pg_roles
WHERE rolname = %(role)s AND pg_has_role(oid, CASE
    WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END))
"""
RESTRICT = {
    "writer": f"SELECT {TAKE_ROLE}",
    "reader": f"""SELECT set_config('transaction_read_only', 'on', true),
        set_config('statement_timeout', %(timeout)s, true), {TAKE_ROLE}""",
}


def database_url(role: Role = "owner", settings: Settings | None = None) -> str:
    """The URL settings name for the role; the embedded server's where they name none."""
    settings = settings or get_settings()
    own: dict[Role, SecretStr | None] = {
        "owner": None,
        "writer": settings.writer_url,
        "reader": settings.reader_url,
    }
    named = own[role] or settings.database_url
    return named.get_secret_value() if named else embedded.url(settings.home)


def parse_url(url: str) -> URL:
    """Accept the spellings people use for Postgres and refuse other databases."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # The text may hold a password, so it is not repeated.
        raise ConfigurationError(
            "GROKTIME_DATABASE_URL is not a URL; accepted: postgresql://user:password@host/database"
            " with @, : and / in the password written as %40, %3A and %2F"
        ) from None
    if parsed.drivername in ("postgres", "postgresql", "postgresql+psycopg2"):
        return parsed.set(drivername="postgresql+psycopg2")
    raise ConfigurationError(
        f"GROKTIME_DATABASE_URL begins with {parsed.drivername!r}; accepted: postgresql://"
    )


def shown(url: str | URL) -> str:
    """The URL as it may be printed: every secret in it is hidden."""
    parsed = parse_url(url) if isinstance(url, str) else url
    hidden = {name: "***" for name in SECRET_PARAMETERS if name in parsed.query}
    plain = parsed.set(drivername="postgresql")  # as psql and other tools read it
    return plain.update_query_dict(hidden).render_as_string(hide_password=True)


def is_local(url: str | URL) -> bool:
    """True when only processes of this machine can use the URL (a Unix socket or loopback)."""
    parsed = parse_url(url) if isinstance(url, str) else url
    named = parsed.query.get("host", parsed.host)
    hosts = (named,) if isinstance(named, str) or named is None else named
    return all(
        host is None or host.startswith("/") or host in ("localhost", "127.0.0.1", "::1", "")
        for host in hosts
    )


def connect(
    url: str | SecretStr | None = None,
    role: Role = "owner",
    *,
    pool_size: int = 5,
    check_schema: bool = True,
    statement_seconds: float | None = None,
) -> Engine:
    """An engine for the role; without a URL the settings' one.

    Refuses a database it cannot reach, and (unless told not to) one whose schema is not this
    code's. A reader's transactions are read-only, and its statements end after `statement_seconds`
    (READER_STATEMENT_SECONDS unless given). With a pool_size of 0 no connection is held between
    transactions.
    """
    if isinstance(url, SecretStr):
        url = url.get_secret_value()
    parsed = parse_url(url if url is not None else database_url(role))
    arguments: dict[str, Any] = {"application_name": f"groktime {role}", **KEEPALIVES}
    arguments["connect_timeout"] = CONNECT_SECONDS
    arguments = {name: value for name, value in arguments.items() if name not in parsed.query}
    pool: dict[str, Any] = {"pool_size": pool_size, "pool_pre_ping": True}
    if pool_size == 0:
        pool = {"poolclass": NullPool}
    engine = create_engine(parsed, connect_args=arguments, hide_parameters=True, **pool)
    if role != "owner":
        _restrict(engine, role, statement_seconds or READER_STATEMENT_SECONDS)
    if check_schema:
        try:
            require_current(engine)
        except OperationalError as error:
            engine.dispose()
            raise unreachable(parsed, error) from error
        except DatabaseError:
            engine.dispose()
            raise
    return engine


def connect_migrated(url: str | None = None) -> Engine:
    """The owner's engine on a database brought to this code's schema."""
    engine = connect(url, check_schema=False)
    try:
        migrate(engine)
    except OperationalError as error:
        raise unreachable(engine.url, error) from error
    except ProgrammingError as error:
        said = str(error.orig).strip().splitlines()
        raise DatabaseError(
            f"database {shown(engine.url)} cannot be migrated ({said[0]}): the login needs the "
            "right to create tables in it"
        ) from error
    return engine


def unreachable(url: URL, error: OperationalError) -> DatabaseError:
    """One line that names the server, what libpq said, and what to do."""
    said = str(error.orig).strip().splitlines()
    hint = (
        "start the embedded server with `groktime db up`"
        if is_local(url) and "host" in url.query
        else "check GROKTIME_DATABASE_URL and that the server runs"
    )
    return DatabaseError(
        f"database {shown(url)} cannot be reached ({said[0] if said else error}): {hint}"
    )


def _restrict(engine: Engine, role: Role, statement_seconds: float) -> None:
    """Begin every transaction of the engine's connections, raw ones too, with the role's limits."""
    statement = RESTRICT[role]
    timeout = f"{1000 * statement_seconds:.0f}ms"
    values = {"role": f"groktime_{role}", "timeout": timeout}

    class RestrictedCursor(psycopg2.extensions.cursor):
        def execute(self, query: Any, vars: Any = None) -> None:
            self._restrict()
            super().execute(query, vars)

        def copy_expert(self, sql: Any, file: Any, size: int = 8192) -> None:
            self._restrict()
            super().copy_expert(sql, file, size)

        def _restrict(self) -> None:
            connection = self.connection
            status = connection.get_transaction_status()
            if status == psycopg2.extensions.TRANSACTION_STATUS_IDLE and not connection.autocommit:
                with connection.cursor(cursor_factory=psycopg2.extensions.cursor) as plain:
                    plain.execute(statement, values)

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _record: Any) -> None:
        connection.cursor_factory = RestrictedCursor
