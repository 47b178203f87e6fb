"""Alembic migrations, run from code by db.engine.migrate."""
