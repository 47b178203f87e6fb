"""How long `groktime` takes to say something: `--help`, `suite list`, `status`.

Beside them a Python that prints one word, and a command of one line with the same library (typer
with rich): what is possible. Each is started in turn, several times; the least and the median of
wall and processor time are printed, because other work on the machine only adds. `status` asks a
scratch database with one recording loaded.

    python benchmarks/command.py [--rounds 7] [--json] [--beside TREE]

`--beside` names another checkout, whose commands are started in turn with these.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORDING = ROOT / "recordings" / "mini.groktime"
GROKTIME = [str(Path(sys.executable).parent / "groktime")]

BARE_TYPER = """
import typer
app = typer.Typer(rich_markup_mode="markdown")
app.command()(lambda: None)
app(["--help"])
"""

Command = tuple[list[str], float | None]

# What is started, and what it should take at most, in seconds of wall time on an idle machine.
COMMANDS: dict[str, Command] = {
    "python -c print": ([sys.executable, "-c", "print('groktime')"], None),
    "bare typer --help": ([sys.executable, "-c", BARE_TYPER], None),
    "groktime --help": ([*GROKTIME, "--help"], 0.3),
    "groktime suite list": ([*GROKTIME, "suite", "list"], 1.0),
    "groktime status mini": ([*GROKTIME, "status", "mini"], 0.7),
    "groktime status": ([*GROKTIME, "status"], 0.7),
}


def of_tree(tree: Path) -> dict[str, Command]:
    """The same commands of another checkout."""
    start = ["env", f"PYTHONPATH={tree}", sys.executable, "-m", "groktime.service.cli"]
    return {
        f"beside: {name}": ([*start, *command[1:]], None)
        for name, (command, _) in COMMANDS.items()
        if command[0] == GROKTIME[0]
    }


def timed(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds of wall and of processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, used


def benchmark(
    commands: dict[str, Command], rounds: int, environment: dict[str, str]
) -> list[dict[str, object]]:
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(rounds + 1):  # the first fills the caches
        for name, (command, _) in commands.items():
            times[name].append(timed(command, environment))
    rows: list[dict[str, object]] = []
    for name, (_, aim) in commands.items():
        walls, used = zip(*times[name][1:], strict=True)
        rows.append(
            {
                "command": name,
                "wall_least": round(min(walls), 3),
                "wall_median": round(statistics.median(walls), 3),
                "processor_least": round(min(used), 3),
                "processor_median": round(statistics.median(used), 3),
                "aim": aim,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="how often each is started")
    parser.add_argument("--json", action="store_true", help="one JSON line")
    parser.add_argument("--beside", type=Path, help="another checkout of this project")
    options = parser.parse_args()
    commands = COMMANDS | (of_tree(options.beside.resolve()) if options.beside else {})
    home = Path(tempfile.mkdtemp(prefix="gt-", dir="/tmp"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GROKTIME_")}
    environment |= {"GROKTIME_HOME": str(home), "GROKTIME_LOG_LEVEL": "error"}
    quiet = {"env": environment, "stdout": subprocess.DEVNULL, "check": True}
    try:
        subprocess.run([*GROKTIME, "db", "up"], **quiet)
        subprocess.run([*GROKTIME, "db", "load", str(RECORDING)], **quiet)
        rows = benchmark(commands, options.rounds, environment)
    finally:
        subprocess.run([*GROKTIME, "db", "down"], **{**quiet, "check": False})
        shutil.rmtree(home, ignore_errors=True)
    if options.json:
        print(json.dumps({"rows": rows}))
        return
    print(f"load {os.getloadavg()[0]:.1f}; seconds of {options.rounds} starts each\n")
    print(f"{'command':<30}{'wall min':>9}{'median':>8}{'CPU min':>9}{'median':>8}{'aim':>6}")
    for r in rows:
        print(
            f"{r['command']:<30}{r['wall_least']:>9}{r['wall_median']:>8}{r['processor_least']:>9}"
            f"{r['processor_median']:>8}{r['aim'] or '':>6}"
        )


if __name__ == "__main__":
    main()
