"""What users can set is documented."""

from __future__ import annotations

from pathlib import Path

from service.settings import Settings

ROOT = Path(__file__).parents[3]


def test_every_setting_has_a_row_in_the_documentation() -> None:
    table = (ROOT / "docs" / "settings.md").read_text()
    missing = [
        variable
        for name in Settings.model_fields
        if (variable := f"`GROKTIME_{name.upper()}`") not in table
    ]
    assert missing == []
