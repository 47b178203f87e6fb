"""Engines per role, the schema they need, and work that outlives the server's restarts.

The owner migrates, writers record, readers ask and cannot write. What a role may do is set at the
beginning of every transaction and ends with it: nothing is left in the session, which behind
PgBouncer in transaction mode is the next client's.

Work is tried until it succeeds. A server that is away for GIVE_UP_SECONDS ends it. One that has no
connection left never does: others are at work on it, and will be done.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import psycopg2
import psycopg2.errors
import psycopg2.extensions
from pydantic import SecretStr
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, ProgrammingError
from sqlalchemy.pool import NullPool

from groktime.db import embedded
from groktime.service.errors import ConfigurationError, DatabaseError, SchemaError
from groktime.service.settings import Settings, get_settings

if TYPE_CHECKING:
    from alembic.config import Config

log = logging.getLogger(__name__)

Role = Literal["owner", "writer", "reader"]

CONNECT_SECONDS = 10
READER_STATEMENT_SECONDS = 60
# A frozen worker, or one whose machine is gone without a word, would keep its locks for hours, and
# nobody could take its runs over.
WRITER_IDLE_SECONDS = 30
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
    "writer": f"""SELECT set_config('idle_in_transaction_session_timeout', %(idle)s, true),
        {TAKE_ROLE}""",
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
    code's; waits for one that has no connection left. A reader's transactions are read-only, and
    its statements end after `statement_seconds` (READER_STATEMENT_SECONDS unless given). With a
    pool_size of 0 no connection is held between transactions.
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
            waiting_for_room(lambda: require_current(engine))
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
        waiting_for_room(lambda: migrate(engine))
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
    values = {
        "role": f"groktime_{role}",
        "timeout": f"{1000 * statement_seconds:.0f}ms",
        "idle": f"{1000 * WRITER_IDLE_SECONDS:.0f}ms",
    }

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


READER = "groktime_reader"
WRITER = "groktime_writer"

GRANTS = {
    READER: (
        "GRANT USAGE ON SCHEMA {schema} TO {role}",
        "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}",
    ),
    WRITER: (
        "GRANT USAGE ON SCHEMA {schema} TO {role}",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
        # The schema is the owner's to change.
        "REVOKE INSERT, UPDATE, DELETE ON alembic_version FROM {role}",
    ),
}


def grant(connection: Connection) -> list[str]:
    """Grant each existing role its rights; returns the roles that do not exist, and says so."""
    existing = set(connection.scalars(text("SELECT rolname FROM pg_roles")))
    schema = connection.scalar(text("SELECT quote_ident(current_schema())"))
    missing = []
    for role, statements in GRANTS.items():
        if role not in existing:
            missing.append(role)
            continue
        for statement in statements:
            connection.execute(text(statement.format(schema=schema, role=role)))
    if missing:
        log.warning(
            "this login may not create roles and %s does not exist: ask an administrator for "
            "CREATE ROLE, then run `groktime db migrate` again",
            ", ".join(missing),
        )
    return missing


# Any number nobody else takes an advisory lock with.
MIGRATION_LOCK = 0x67726F6B  # "grok"


MIGRATIONS = Path(__file__).parent / "migrations"


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    return config


def head() -> str:
    """The newest schema this code knows."""
    return max(known_revisions())


def current(connection: Connection) -> str | None:
    """The database's schema; None when it is empty."""
    there = text("SELECT to_regclass('alembic_version') IS NOT NULL")
    if not connection.scalar(there):
        return None
    revision: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return revision


def known_revisions() -> set[str]:
    """All schemas this code can upgrade from, and its own: the numbers the files begin with.

    Alembic, which takes a quarter of a second to import, is needed only to change a schema.
    """
    return {path.name[:4] for path in (MIGRATIONS / "versions").glob("[0-9]*.py")}


def require_current(engine: Engine) -> None:
    """Refuse a schema older or newer than this code's, saying what to do."""
    with engine.connect() as connection:
        revision = current(connection)
    if revision == head():
        return
    if revision is None:
        raise SchemaError("the database has no groktime tables yet: run `groktime db migrate`")
    if revision in known_revisions():
        raise SchemaError(
            f"the database's schema {revision} is older than this groktime's {head()}: "
            "run `groktime db migrate`"
        )
    raise SchemaError(_newer(revision))


def _newer(revision: str) -> str:
    return (
        f"the database's schema {revision} is newer than this groktime's {head()}: "
        "install the groktime that made it, or a later one"
    )


def migrate(engine: Engine, to: str = "head") -> str:
    """Upgrade in one transaction; processes that migrate at once wait for each other."""
    with engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
        revision = current(connection)
        if revision is not None and revision not in known_revisions():
            raise SchemaError(_newer(revision))
        from alembic import command

        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, to)
        reached = current(connection)
        grant(connection)
    assert reached is not None
    return reached


FIRST_WAIT, LONGEST_WAIT = 0.05, 5.0  # seconds between tries
GIVE_UP_SECONDS = 600.0
IDLE_SECONDS = 5.0  # a connection that is used less often than this is not held

# What PostgreSQL and PgBouncer say when they have none left; libpq gives no code with it.
SHORTAGES = (
    "too many clients",
    "too many connections",
    "remaining connection slots",
    "no more connections allowed",
    "query_wait_timeout",
)

Found = TypeVar("Found")


class RetryingConnection:
    """One psycopg2 connection of an engine, made again whenever it was lost.

    It is kept from one work to the next only while they follow each other closely, so that many
    workers that rarely write do not take all connections of a server.
    """

    def __init__(
        self, engine: Engine, give_up_seconds: float, wait: Callable[[float], None]
    ) -> None:
        """`wait` passes the seconds between tries, and raises when there is to be no other."""
        self._engine = engine
        self._give_up_seconds = give_up_seconds
        self._wait = wait
        self._connection: Any = None
        self._used_at = -IDLE_SECONDS

    def persist(self, work: Callable[[Any], None]) -> None:
        """Do the work, again after each failure that may pass; raise the error of the last."""
        pause = FIRST_WAIT
        deadline = time.monotonic() + self._give_up_seconds
        while True:
            try:
                work(self._connected())
                self._let_go()
                return
            except (psycopg2.Error, DBAPIError) as error:
                cause = error.orig if isinstance(error, DBAPIError) else error
                self.drop()
                if is_starved(cause):
                    raise MemoryError(first_line(cause)) from error
                if is_shortage(cause):
                    deadline = time.monotonic() + self._give_up_seconds
                elif not is_transient(cause) or time.monotonic() > deadline:
                    raise
                log.warning("database: %s; trying again in %.2f s", first_line(cause), pause)
            self._wait(spread(pause))
            pause = min(2 * pause, LONGEST_WAIT)

    def _let_go(self) -> None:
        rare = time.monotonic() - self._used_at > IDLE_SECONDS
        self._used_at = time.monotonic()
        if rare and self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> Any:
        if self._connection is None:
            self._connection = self._engine.raw_connection()
        return self._connection.driver_connection

    def drop(self) -> None:
        """Close it; the next work gets a new one."""
        if self._connection is not None:
            self._connection.invalidate()
            self._connection = None


def retrying(work: Callable[[], Found], give_up_seconds: float = GIVE_UP_SECONDS) -> Found:
    """What the work on an engine returns; it is done again while the server may come back.

    Work may be done twice when only its answer was lost, so it must bear that.
    """
    pause = FIRST_WAIT
    deadline = time.monotonic() + give_up_seconds
    while True:
        try:
            return work()
        except DBAPIError as error:
            if is_starved(error.orig):
                raise MemoryError(first_line(error.orig)) from error
            if not is_transient(error.orig):
                raise
            said = first_line(error.orig)
            if is_shortage(error.orig):
                deadline = time.monotonic() + give_up_seconds
            elif time.monotonic() > deadline:
                raise DatabaseError(
                    f"the database has been away for {give_up_seconds:g} s: {said}"
                ) from error
            log.warning("database: %s; trying again in %.2f s", said, pause)
        time.sleep(spread(pause))
        pause = min(2 * pause, LONGEST_WAIT)


def waiting_for_room(work: Callable[[], Found]) -> Found:
    """What the work on an engine returns, once the server has a connection for it.

    Whatever else is wrong is raised at once, for whoever is there to mend it.
    """
    pause = FIRST_WAIT
    while True:
        try:
            return work()
        except DBAPIError as error:
            if not is_shortage(error.orig):
                raise
            log.warning("database: %s; trying again in %.2f s", first_line(error.orig), pause)
        time.sleep(spread(pause))
        pause = min(2 * pause, LONGEST_WAIT)


def spread(pause: float) -> float:
    """About the pause: workers refused together do not come back together."""
    return pause * random.uniform(0.5, 1.5)


def is_transient(error: BaseException | None) -> bool:
    """Whether waiting may help: connection, restart, read-only, disk full, deadlock, timeout."""
    return isinstance(
        error,
        psycopg2.OperationalError
        | psycopg2.InterfaceError
        | psycopg2.errors.IdleInTransactionSessionTimeout
        | psycopg2.errors.ReadOnlySqlTransaction,
    )


def is_shortage(error: BaseException | None) -> bool:
    """Whether the server is there and has no connection left for us."""
    return isinstance(error, psycopg2.OperationalError) and any(
        words in str(error) for words in SHORTAGES
    )


def is_starved(error: BaseException | None) -> bool:
    """Whether this process, not the server, had no memory left: waiting would be in vain."""
    return (
        isinstance(error, psycopg2.OperationalError)
        and error.pgcode is None
        and "out of memory" in str(error)
    )


def first_line(error: BaseException | None) -> str:
    """What to show of an error whose text may have many lines."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
