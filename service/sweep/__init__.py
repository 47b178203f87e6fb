"""Sweeps: pending runs planned into bundles and trained through Ray Tune."""
