"""Suites: grids of runs written in YAML, validated and expanded."""

from service.suites.expansion import LeftOut, Member
from service.suites.loader import Inherited, Suite, load_suite, shipped_suites

__all__ = ["Inherited", "LeftOut", "Member", "Suite", "load_suite", "shipped_suites"]
