"""Postgres: schema, migrations, embedded server, recorder (writes), queries (reads), export."""
