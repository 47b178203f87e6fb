"""The documented simulations, run as a user would run them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


def run(script: str, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), "--json", *arguments],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)


@pytest.mark.slow
def test_coverage_script_answers() -> None:
    answer = run("coverage.py", "--trials", "4", "--worlds", "1", "--seeds", "5")
    assert [row["seeds"] for row in answer["coverage"]] == [5]
    assert len(answer["bias"]) > 3


@pytest.mark.slow
def test_analysis_benchmark_answers() -> None:
    rows = run("analysis.py", "--quick")
    assert all(row["ms"] > 0 for row in rows)
    assert any(row["times_faster"] for row in rows)


@pytest.mark.long
@pytest.mark.parametrize("part", ["coverage", "grids"])
def test_interval_covers_the_crossing_in_92_to_98_per_cent_where_it_is_not_coarse(
    part: str,
) -> None:
    answer = run("coverage.py", "--part", part, "--seeds", "10", "--trials", "600")
    judged = 0
    for row in answer[part]:
        if row["not_coarse"] < 0.2 or row["open_ended"] > 0.5:
            continue  # too few to judge, or half of the intervals have no end
        judged += 1
        assert 0.92 <= row["coverage_not_coarse"] <= 0.98, row["world"]
    assert judged >= 2


@pytest.mark.long
def test_stuck_runs_bias_the_papers_crossing_and_not_the_robust_one() -> None:
    answer = run("coverage.py", "--part", "bias")
    rows = {row["world"]: row for row in answer["bias"]}
    stuck = rows["30 % of grok runs never generalise"]
    assert stuck["paper_bias"] > 2 * abs(stuck["robust_bias"])
    assert abs(stuck["robust_bias"]) < 0.03
    free = rows["nothing censored near the crossing"]
    assert abs(free["robust_bias"]) < 0.02
