"""The HTTP API: ask a suite, and get an answer with its making."""
