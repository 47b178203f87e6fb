"""Reads: suites, coverage, runs, curves, and the frames that analyses start from."""
