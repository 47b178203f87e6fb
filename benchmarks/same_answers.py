"""Whether another tree of this project gives the same answers, byte for byte.

    GROKTIME_HOME=FOLDER python -m benchmarks.same_answers OTHER [--keep FILE] [--json]

Both trees ask the same database, which holds the recordings (`groktime db load`), each in a
process of its own: every route that reads, for every suite and prime, as JSON and as CSV, with
the figures, methods, clocks and the schema. OTHER is the folder of a tree, or what `--keep` wrote
of its answers. Exits 1 when a body differs, and names its address.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent

# What is asked of a tree: the folder, and where to write an object of addresses to bodies.
PROGRAM = """
import json, sys
from pathlib import Path
tree, target = sys.argv[1:]
sys.path.insert(0, tree)
import groktime.api.app as app
from fastapi.testclient import TestClient
assert Path(app.__file__).resolve().is_relative_to(Path(tree).resolve())
bodies = {}
with TestClient(app.create_app(), base_url="http://localhost") as client:
    def get(address):
        answer = client.get(address)
        bodies[address] = f"{answer.status_code}\\n{answer.text}"
        return answer
    for of in ("cell", "law", "suite", "capacity"):
        get(f"/start?of={of}")
    schema = json.loads(get("/openapi.json").text)["paths"]["/charts/{name}"]["get"]["parameters"]
    charts = next(one["schema"]["enum"] for one in schema if one["name"] == "name")
    for suite in [entry["name"] for entry in get("/suites").json()["items"]]:
        for route in ("", "/coverage", "/placement", "/cells", "/forecasts", "/report"):
            get(f"/suites/{suite}{route}")
        for route in ("coverage", "cells"):
            get(f"/suites/{suite}/{route}?format=csv")
        runs = get(f"/runs?suite={suite}&limit=40").json()["items"]
        get(f"/runs?suite={suite}&format=csv&limit=40")
        for run in runs[::13]:
            get(f"/runs/{run['id']}")
            get(f"/runs/{run['id']}/curve?points=50")
            get(f"/charts/curves?run={run['id']}")
        for form in ("json", "csv"):
            for route in ("capacity", "law", "delay_law", "tests"):
                for more in ("", "&method=paper", "&clock=eval"):
                    get(f"/{route}?suite={suite}&format={form}{more}")
        cells = get(f"/suites/{suite}/coverage").json()["cells"]
        primes = sorted({cell["prime"] for cell in cells})
        for prime in primes[::2]:
            for route in ("crossing", "onset", "delay", "regimes", "speeds"):
                get(f"/{route}?suite={suite}&prime={prime}&format=csv")
                for more in ("", "&method=paper", "&clock=eval", "&t_gen=0.9725"):
                    get(f"/{route}?suite={suite}&prime={prime}{more}")
        for name in charts:
            get(f"/charts/{name}?suite={suite}")
            get(f"/charts/{name}?suite={suite}&prime={primes[-1]}")
Path(target).write_text(json.dumps(bodies))
"""


def answers_of(tree: Path) -> dict[str, str]:
    """Bodies by address, asked in a process of that tree."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "bodies.json"
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tree.resolve()), str(target)],
            check=True,
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        bodies: dict[str, str] = json.loads(target.read_text())
        return bodies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("other", type=Path, help="root of the other tree, or its kept answers")
    parser.add_argument("--keep", type=Path, help="write this tree's answers to a file")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    options = parser.parse_args()
    ours = answers_of(HERE)
    if options.keep:
        options.keep.write_text(json.dumps(ours))
    other: Path = options.other
    theirs = json.loads(other.read_text()) if other.is_file() else answers_of(other)
    different = [one for one in sorted({*ours, *theirs}) if ours.get(one) != theirs.get(one)]
    if options.json:
        print(json.dumps({"asked": len(ours), "different": different}))
    else:
        print(*different, f"{len(different)} of {len(ours)} bodies differ", sep="\n")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
