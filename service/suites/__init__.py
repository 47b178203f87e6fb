"""Suites: grids of runs written in YAML, validated and expanded."""

from groktime.service.suites.expansion import LeftOut, Member
from groktime.service.suites.loader import Inherited, Suite, load_suite, shipped_suites

__all__ = ["Inherited", "LeftOut", "Member", "Suite", "load_suite", "shipped_suites"]
