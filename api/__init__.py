"""The HTTP API: ask a suite, and get an answer with its making."""

from api.app import create_app

__all__ = ["create_app"]
