"""How much faster the engines train than a plain loop, and how close to the machine's limit.

    python -m benchmarks.engine [--quick | --seconds S] [--positions rope] [--march NAME] [--json]

One thread, one run of this program: a plain one-model loop and each engine take turns, and only
ratios of their times mean anything. The share of peak counts the multiply-adds that the exact
algebra of workers/forward.py leaves over, against the best sgemm rate measured in the same run;
the ratio at peak is what an engine would reach that did them at that rate and nothing else.

`--march haswell` compiles the native engine for another processor, one with AVX2 and no AVX-512;
MKL_ENABLE_INSTRUCTIONS=AVX2 then bounds sgemm likewise.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

# Before the numerical libraries start: one thread for everyone.
os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from benchmarks.baseline import train_plain
from groktime.service.spec import ModelSpec, ModularData, RandomData, RunSpec, ThresholdStop
from groktime.workers.engines import Stack, make_stack, native_refusal
from groktime.workers.native.engine import Library, NativeStack, build

CASES = [(113, 20), (113, 32), (113, 64), (113, 128), (59, 24), (59, 48)]
DATA = ("modular", "random")


@dataclass(frozen=True)
class Row:
    """One engine at one setting; times are milliseconds per model and epoch."""

    prime: int
    width: int
    data: str
    engine: str
    plain_ms: float
    engine_ms: float
    ratio: float
    peak_share: float
    ratio_at_peak: float


MakeStack = Callable[[Sequence[RunSpec]], Stack]


def make_spec(prime: int, width: int, data: str, positions: str) -> RunSpec:
    """The central model on the task, or on as many random labels; one evaluation an epoch."""
    table = ModularData(prime=prime)
    modular = data == "modular"
    return RunSpec(
        kind="grok" if modular else "speed",
        data=table if modular else RandomData(prime=prime, n=table.n_train),
        model=ModelSpec(width=width, positions=positions),
        stop=ThresholdStop(val=0.99 if modular else None),
        eval_train=False,
        seed=42,
    )


def sgemm_peak(seconds: float) -> float:
    """The best rate of a square product that fits the cache, in multiply-adds per second."""
    size = 768
    a, b = torch.randn(size, size), torch.randn(size, size)
    out = torch.empty(size, size)
    best, deadline = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        start = time.perf_counter()
        torch.mm(a, b, out=out)
        best = min(best, time.perf_counter() - start)
    return size**3 / best


def multiply_adds(spec: RunSpec) -> float:
    """Multiply-adds of one epoch with the exact algebra (depth 2, one head), training and eval.

    Per example: layer 0's W2 at all positions and W1, W3 at those that differ; the last layer's
    attention folded around its weighted sum and its FFN at the last position; the readout. A
    backward pass costs two forward ones. Work on tables over the vocabulary is left out.
    """
    d, v = spec.model.width, spec.vocabulary
    own = 2 if isinstance(spec.data, ModularData) else 3  # positions not fixed by the first token
    folded = 2 if spec.model.positions == "none" else 5
    last = folded * d * d + 12 * d * d + v * d
    training = own * 8 * d * d + 4 * 4 * d * d + last
    evaluation = own * 12 * d * d + last
    return 3 * training * spec.data.n_train + evaluation * spec.data.n_val


def take_turns(workers: Sequence[Callable[[], object]], seconds: float, rounds: int) -> list[float]:
    """Best times of all, alternating until the time is up: a busy machine slows all alike."""
    times: list[list[float]] = [[] for _ in workers]
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or len(times[0]) < rounds:
        for own, work in zip(times, workers, strict=True):
            start = time.perf_counter()
            work()
            own.append(time.perf_counter() - start)
    # The fastest is what the code can do; slower ones are what else the machine did.
    return [min(own) for own in times]


def measure(
    spec: RunSpec, engines: Mapping[str, MakeStack], seconds: float, rounds: int, peak: float
) -> Iterator[Row]:
    """The plain loop and every engine on one run, epoch by epoch in turn."""
    stacks = [make([spec]) for make in engines.values()]
    plain = train_plain(spec)
    workers: list[Callable[[], object]] = [
        lambda: next(plain),
        *(partial(stack.advance, 1) for stack in stacks),
    ]
    take_turns(workers, 0, 1)  # the first epoch of a process is not typical
    plain_time, *engine_times = take_turns(workers, seconds, rounds)
    for engine, engine_time in zip(engines, engine_times, strict=True):
        yield Row(
            spec.data.prime,
            spec.model.width,
            spec.data.task,
            engine,
            1e3 * plain_time,
            1e3 * engine_time,
            plain_time / engine_time,
            multiply_adds(spec) / engine_time / peak,
            plain_time * peak / multiply_adds(spec),
        )


def rows(seconds: float, rounds: int, positions: str, march: str | None) -> Iterator[Row]:
    peak = sgemm_peak(seconds)
    engines: dict[str, MakeStack] = {"torch": partial(make_stack, engine="torch", device="cpu")}
    if native_refusal(make_spec(59, 24, "modular", positions), "cpu") is None:
        library = Library(build(None if march is None else [f"-march={march}"]))
        engines["native"] = partial(NativeStack, engine=library)
    for prime, width in CASES:
        for data in DATA:
            spec = make_spec(prime, width, data, positions)
            yield from measure(spec, engines, seconds, rounds, peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="under 50 seconds, rougher")
    parser.add_argument("--seconds", type=float, help="for each setting, one round at least")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--positions", choices=["none", "rope"], default="none")
    parser.add_argument("--march", help="a processor that the native engine is compiled for")
    options = parser.parse_args()
    torch.set_num_threads(1)
    measured = []
    if not options.json:
        print("prime width data    engine  plain ms  engine ms  ratio  share of peak  ratio at it")
    seconds, rounds = (0.3, 1) if options.quick else (5.0, 3)
    if options.seconds is not None:
        seconds, rounds = options.seconds, 1
    for row in rows(seconds, rounds, options.positions, options.march):
        measured.append(row)
        if not options.json:
            print(
                f"{row.prime:5} {row.width:5} {row.data:7} {row.engine:7} {row.plain_ms:8.1f} "
                f"{row.engine_ms:10.1f} {row.ratio:6.1f} {row.peak_share:14.0%} "
                f"{row.ratio_at_peak:14.1f}"
            )
    if options.json:
        print(json.dumps({"rows": [asdict(row) for row in measured]}))
        return
    for engine in dict.fromkeys(row.engine for row in measured):
        ratios = [row.ratio for row in measured if row.engine == engine]
        print(f"{engine}: median ratio {statistics.median(ratios):.1f}")


if __name__ == "__main__":
    main()
