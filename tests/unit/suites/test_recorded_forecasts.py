"""The forecasts beside the recordings are of shipped suites, and can be scored."""

from __future__ import annotations

from pathlib import Path

import pytest

from groktime.service.commands.forecast import read_statements
from groktime.service.suites import load_suite

FOLDER = Path(__file__).parents[3] / "recordings" / "forecasts"


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yaml")), ids=lambda file: file.stem)
def test_a_forecast_is_about_primes_and_settings_of_its_suite(file: Path) -> None:
    suite = load_suite(file.stem)
    primes = {member.prime for member in suite.members()}
    values = {name: {member.setting[name] for member in suite.members()} for name in suite.axes}
    for statement in read_statements(file, 0.9):
        assert statement.prime is None or statement.prime in primes
        assert all(value in values[name] for name, value in statement.setting.items())
