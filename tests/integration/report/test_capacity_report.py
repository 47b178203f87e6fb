"""A suite that measures capacity alone has a report: C by weight decay."""

from __future__ import annotations

from pathlib import Path

from fixtures.database import Database
from fixtures.seeded import record, register

from groktime.db.claims import claim
from groktime.db.suites import open_runs
from groktime.service.report.assembly import assemble
from groktime.service.report.content import gather
from groktime.service.report.document import markdown
from groktime.service.report.drawings import render
from groktime.service.report.laws import protocol_sentences
from groktime.service.report.results import findings_table, suite_page
from groktime.service.suites import load_suite

PROTOCOLS = """
description: Capacity alone, by weight decay.
primes: [23]
seeds: [1, 2]
axes:
  weight_decay: [0.0, 1.0]
capacity:
  widths: [4, 6, 8, 10]
  examples: [150, 300, 600, 1200, 2400, 4800]
"""


def test_capacity_by_weight_decay_is_reported_beside_the_published_constants(
    seeded: Database, tmp_path: Path
) -> None:
    path = tmp_path / "protocols.yaml"
    path.write_text(PROTOCOLS)
    suite = load_suite(path)
    ids = open_runs(seeded.engine, register(seeded.engine, suite))
    record(seeded.engine, claim(seeded.engine, list(ids.values()), "seeding", 60))
    with seeded.engine.connect() as connection:
        content = gather(connection, "protocols")
    assert [part.setting for part in content.settings] == [
        {"weight_decay": 0.0},
        {"weight_decay": 1.0},
    ]
    origin, central, most = protocol_sentences(content)
    assert origin.startswith("Where 2.16 comes from")
    assert "At weight decay 1, with which the central networks train" in central
    assert "Morris et al.'s 3.6" in most
    text = markdown(assemble([content], [], "groktime report protocols").document, "figures")
    assert "| weight decay 0 | 2.1" in text
    assert "Length of the delay" not in text
    page, drawings = suite_page(content, ())
    titles = [section.title for section in page.sections]
    assert titles.index("Answer") < titles.index("Verdict") < titles.index("Figures")
    assert "All tests" not in titles
    assert drawings[0].stem == "protocols-capacities"
    assert render(drawings[0], ("svg",))["svg"].startswith(b"<?xml")
    (bits,) = findings_table([content], ())
    assert bits.claim == "Bits stored per parameter with weight decay 1, as the networks train"
    assert bits.here.endswith(" with weight decay 0")
    assert bits.paper == "2.16"
