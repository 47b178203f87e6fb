"""A dump whose checksum is right but whose content is not: loaded whole and sound, or refused.

Damage in transit is found by the checksum. These are files that somebody wrote: every value may
be anything. Whatever is refused changes nothing, and is told in one line.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.curves import record_all
from fixtures.database import Database
from fixtures.dumps import Members, parts, sealed
from fixtures.runs import capacity_spec, check_listed, claim_all, grok_spec, register
from sqlalchemy import text

from groktime.db.export import CURVE, MANIFEST, RUNS, dump_suite
from groktime.db.load import load_dump
from groktime.db.maintenance import check
from groktime.service.errors import GroktimeError

Mutation = Callable[[Members, random.Random], None]

STRANGE: list[Any] = [
    *(None, True, -1, 0, 2**40, 1.5, float("nan"), "", "x", "'; DROP TABLE runs; --", "\u0000"),
    *([], {}, [None], {"a": 1}, "done", "pending", "running", "9999-99-99", "\\N", "\t"),
]


@pytest.fixture
def members(database: Database, tmp_path: Path) -> Members:
    """The parts of a good dump."""
    specs = [grok_spec(seed=1), grok_spec(seed=2), capacity_spec()]
    record_all(database.engine, claim_all(database.engine, specs), epochs=30)
    register(database.engine, [*specs, grok_spec(seed=9)])
    path = tmp_path / "good.dump"
    engine = database.engine.execution_options(isolation_level="REPEATABLE READ")
    with engine.connect() as connection:
        dump_suite(connection, "little", path)
    return parts(path)


def everything(database: Database) -> list[Any]:
    found = []
    with database.engine.connect() as connection:
        for table in ("suites", "runs", "suite_runs", "attempts", "curve"):
            found.append(connection.scalars(text(f"SELECT t::text FROM {table} t")).all())
    return found


def replace_value(document: Any, rng: random.Random) -> None:
    """Put something strange at a random place of a JSON document."""
    while True:
        keys = list(document) if isinstance(document, dict) else list(range(len(document)))
        key = rng.choice(keys)
        inner = document[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.8:
            document = inner
            continue
        if isinstance(document, dict) and rng.random() < 0.3:
            del document[key]
        else:
            document[key] = rng.choice(STRANGE)
        return


def mutate_manifest(members: Members, rng: random.Random) -> None:
    document = json.loads(members[MANIFEST])
    replace_value(document, rng)
    members[MANIFEST] = json.dumps(document).encode()


def mutate_run(members: Members, rng: random.Random) -> None:
    lines = members[RUNS].splitlines()
    place = rng.randrange(len(lines))
    document = json.loads(lines[place])
    replace_value(document, rng)
    lines[place] = json.dumps(document).encode()
    members[RUNS] = b"\n".join(lines) + b"\n"


def repeat_or_drop_run(members: Members, rng: random.Random) -> None:
    lines = members[RUNS].splitlines()
    lines.insert(rng.randrange(len(lines)), lines.pop(rng.randrange(len(lines))))
    if rng.random() < 0.5:
        lines.append(rng.choice(lines))
    else:
        lines.pop()
    manifest = json.loads(members[MANIFEST])
    manifest["runs"] = len(lines)
    members[MANIFEST] = json.dumps(manifest).encode()
    members[RUNS] = b"\n".join(lines) + b"\n"


def mutate_curve(members: Members, rng: random.Random) -> None:
    table = pq.read_table(pa.BufferReader(members[CURVE]))
    how = rng.choice(["drop", "double", "line", "epoch", "column", "type"])
    place = rng.randrange(table.num_rows)
    if how == "drop":
        table = pa.concat_tables([table.slice(0, place), table.slice(place + 1)])
    elif how == "double":
        table = pa.concat_tables([table, table.slice(place, 1)])
    elif how == "column":
        table = table.drop_columns([rng.choice(table.column_names)])
    else:
        name = {"line": "line", "epoch": "epoch", "type": rng.choice(table.column_names)}[how]
        values = table[name].to_pylist()
        values[place] = rng.choice([-1, 0, 99, 2**31 - 1, None])
        kind = pa.string() if how == "type" else table[name].type
        column = pa.array([str(v) if how == "type" else v for v in values], kind)
        table = table.set_column(table.column_names.index(name), name, column)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    members[CURVE] = sink.getvalue().to_pybytes()


def lose_member(members: Members, rng: random.Random) -> None:
    del members[rng.choice(list(members))]


def garble_member(members: Members, rng: random.Random) -> None:
    name = rng.choice(list(members))
    content = bytearray(members[name])
    for _ in range(rng.randint(1, 5)):
        content[rng.randrange(len(content))] = rng.randrange(256)
    members[name] = bytes(content)


MUTATIONS: list[tuple[Mutation, int]] = [
    (mutate_manifest, 25),
    (mutate_run, 60),
    (repeat_or_drop_run, 8),
    (mutate_curve, 25),
    (lose_member, 3),
    (garble_member, 20),
]


@pytest.mark.parametrize(
    ("mutate", "times"), MUTATIONS, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_mutated_dump_is_loaded_whole_and_sound_or_changes_nothing(
    mutate: Mutation, times: int, members: Members, other: Database, tmp_path: Path
) -> None:
    empty = everything(other)
    rng = random.Random(mutate.__name__)
    for _ in range(times):
        mutated = dict(members)
        mutate(mutated, rng)
        path = sealed(mutated, tmp_path)
        try:
            load_dump(other.engine, path, check_listed)
        except GroktimeError as refusal:
            said = str(refusal)
            assert everything(other) == empty, said
            assert "\n" not in said
            continue
        with other.engine.begin() as connection:
            assert check(connection).findings == []
        with other.engine.begin() as connection:
            connection.execute(text("TRUNCATE runs, suites, suite_runs, attempts, curve CASCADE"))
