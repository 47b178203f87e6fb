"""The compiled engine seen from Python: compiled once for this processor and kept; its structures,
functions and memory, and its stack.

The library's name carries a hash of the sources, the compiler, its flags and the processor, and it
is moved into place in one step: workers that start at once each find either nothing or a whole
library, and at worst compile the same one twice.

A library runs with all rights of whoever loads it. So it is loaded only from a folder that nobody
but its user and root can have written into, up to the root of the file system.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import stat
import subprocess
import tempfile
import time
import weakref
from collections.abc import Sequence
from ctypes import (
    POINTER,
    Structure,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groktime.service.errors import ConfigurationError, EngineError
from groktime.service.settings import get_settings
from groktime.service.spec import TOKENS, RandomData, RunSpec
from groktime.workers.devices import cpu_name
from groktime.workers.engines import METRICS, State, source_hash
from groktime.workers.model import FIRST_MOMENT, SECOND_MOMENT, initial_state, run_parameters
from groktime.workers.streams import dropout_scale, dropout_threshold
from groktime.workers.tasks import Dataset, make_dataset

log = logging.getLogger(__name__)

SOURCES = Path(__file__).parent
# No -ffast-math: sums keep their order, so that a curve depends on nothing but its run.
FLAGS = (
    "-std=gnu11",
    "-O3",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
)


@dataclass(frozen=True)
class Build:
    """A compiled library and what it was made with."""

    path: Path
    compiler: str  # version line
    flags: tuple[str, ...]


def source_files() -> list[Path]:
    """The C sources; engine.c includes all the others."""
    return sorted(path for path in SOURCES.iterdir() if path.suffix in (".c", ".h"))


def native_flags() -> tuple[str, ...]:
    """Use every instruction this processor has."""
    arm = platform.machine().lower() in ("aarch64", "arm64")
    return ("-mcpu=native",) if arm else ("-march=native",)


def find_compiler() -> str | None:
    """$CC, or the first of cc, gcc and clang on the path."""
    names = [os.environ["CC"]] if os.environ.get("CC") else ["cc", "gcc", "clang"]
    return next((path for name in names if (path := shutil.which(name))), None)


def build(flags: Sequence[str] | None = None, folder: Path | None = None) -> Build:
    """The library for these extra flags (default: this processor's), compiled if not there yet."""
    compiler = find_compiler()
    if compiler is None:
        raise ConfigurationError("no C compiler (cc, gcc or clang) on this machine")
    folder = safe_folder(folder or get_settings().home / "native")
    chosen = FLAGS + tuple(native_flags() if flags is None else flags)
    version = _run([compiler, "--version"]).splitlines()[0]
    target = folder / f"engine-{_key(compiler, version, chosen)}.so"
    if not target.exists() or _writers(target):
        log.info("compiling the native engine with %s into %s (once, seconds)", compiler, target)
        started = time.monotonic()
        _compile(compiler, chosen, target)
        log.info("compiled the native engine in %.1f s", time.monotonic() - started)
    return Build(target, version, chosen)


@lru_cache(maxsize=8)
def safe_folder(wanted: Path) -> Path:
    """The folder, or one of this user's own where others could put a library into the first."""
    wanted = wanted.absolute().resolve()
    exposed = exposure(wanted)
    if exposed is None:
        return wanted
    private = Path(tempfile.gettempdir()).resolve() / f"groktime-native-{os.getuid()}"
    try:
        private.mkdir(mode=0o700, exist_ok=True)
        if private.is_symlink() or exposure(private):
            private = Path(tempfile.mkdtemp(prefix="groktime-native-")).resolve()
    except OSError as error:
        raise ConfigurationError(f"cannot write {private}: {error.strerror}") from error
    log.warning("%s: the native engine is kept in %s instead of %s", exposed, private, wanted)
    return private


def exposure(folder: Path) -> str | None:
    """Why others could put a file into the folder or replace it, or None; by owners and modes.

    Of its ancestors one that anybody may write into is harmless where only owners may rename
    (/tmp); what does not exist yet will be made by us.
    """
    for place in (folder, *folder.parents):
        if place.exists():
            writers = _writers(place, sticky=place != folder)
            if writers:
                return f"{place} can be written by {writers}"
    return None


def _writers(path: Path, *, sticky: bool = False) -> str | None:
    """Who else can write there: its owner, its group or all, or nobody."""
    found = path.lstat()
    if found.st_uid not in (0, os.getuid()):
        return f"its owner, user {found.st_uid}"
    if sticky and found.st_mode & stat.S_ISVTX:
        return None
    if found.st_mode & stat.S_IWOTH:
        return "everybody"
    return f"group {found.st_gid}" if found.st_mode & stat.S_IWGRP else None


@lru_cache(maxsize=1)
def unavailable() -> str | None:
    """Why the native engine cannot be used on this machine, or None; said once in the log."""
    try:
        build()
    except ConfigurationError as error:
        log.warning("the native engine is not available, PyTorch trains instead: %s", error)
        return str(error)
    return None


def _key(compiler: str, version: str, flags: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for path in source_files():
        digest.update(path.name.encode() + path.read_bytes())
    for part in (compiler, version, *flags, platform.machine(), cpu_name(), _cpu_features()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:20]


def _cpu_features() -> str:
    """Instruction sets as the system lists them: one model name may hide some of them."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return ""
    lines = info.read_text().splitlines()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _compile(compiler: str, flags: Sequence[str], target: Path) -> None:
    try:
        for folder in reversed((target.parent, *target.parent.parents)):
            folder.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            made = Path(scratch) / target.name
            _run([compiler, *flags, str(SOURCES / "engine.c"), "-o", str(made), "-lm"])
            made.chmod(0o755)
            made.replace(target)
    except OSError as error:
        raise ConfigurationError(f"cannot write {target}: {error.strerror}") from error


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or "no message").splitlines()[0]
        raise ConfigurationError(f"{command[0]} failed: {said}")
    return done.stdout


_PREFIXES = ("", FIRST_MOMENT, SECOND_MOMENT)

# Layer 0's scores are tables over pairs of tokens, or of tokens at learned positions: beyond so
# many they no longer pay.
MAX_TABLE_ROWS = 1024


class CRun(Structure):
    """`Run` of network.h, field by field."""

    _fields_ = (
        *((name, c_int32) for name in ("vocabulary", "width", "depth")),
        *((name, c_int32) for name in ("rope", "learned", "layer_norm", "gated", "pairs")),
        *((name, c_int32) for name in ("batch_size", "n_train", "n_val", "evaluates_train")),
        ("dropout_threshold", c_int32),
        ("dropout_scale", c_float),
        *((name, c_double) for name in ("lr", "beta1", "beta2", "eps", "weight_decay")),
        ("seed", c_uint64),
        *((name, c_void_p) for name in ("x_train", "y_train", "x_val", "y_val")),
        *((name, c_void_p) for name in ("weights", "first_moment", "second_moment")),
    )


@dataclass(frozen=True)
class Run:
    """A run in the form C reads, with the arrays its pointers point into."""

    structure: CRun
    flat: NDArray[np.float32]  # [3, P]: weights and both moments
    examples: tuple[NDArray[np.int32], ...]


def make_run(spec: RunSpec, data: Dataset, flat: NDArray[np.float32]) -> Run:
    """Describe the run to C; training changes `flat` in place."""
    model, optimiser = spec.model, spec.optimiser
    arrays = (data.x_train, data.y_train, data.x_val, data.y_val)
    examples = tuple(np.ascontiguousarray(array, dtype=np.int32) for array in arrays)
    structure = CRun(
        vocabulary=spec.vocabulary,
        width=model.width,
        depth=model.depth,
        rope=model.positions == "rope",
        learned=model.positions == "learned",
        layer_norm=model.norm == "layer",
        gated=model.ffn == "gated",
        pairs=not isinstance(spec.data, RandomData),
        batch_size=optimiser.batch_size,
        n_train=len(data.y_train),
        n_val=len(data.y_val),
        evaluates_train=spec.eval_train or spec.records_bits,
        dropout_threshold=dropout_threshold(model.dropout),
        dropout_scale=dropout_scale(model.dropout),
        lr=optimiser.lr,
        beta1=optimiser.beta1,
        beta2=optimiser.beta2,
        eps=optimiser.eps,
        weight_decay=optimiser.weight_decay,
        seed=spec.seed,
        **{
            name: array.ctypes.data
            for name, array in zip(("x_train", "y_train", "x_val", "y_val"), examples, strict=True)
        },
        weights=flat[0].ctypes.data,
        first_moment=flat[1].ctypes.data,
        second_moment=flat[2].ctypes.data,
    )
    return Run(structure, flat, examples)


class Library:
    """The functions of engine.c. A call releases the interpreter while it runs."""

    def __init__(self, made: Build) -> None:
        self.build = made
        functions = ctypes.CDLL(str(made.path))
        self._functions = functions
        functions.groktime_workspace.restype = c_void_p
        functions.groktime_workspace.argtypes = []
        functions.groktime_free.restype = None
        functions.groktime_free.argtypes = [c_void_p]
        functions.groktime_instructions.restype = ctypes.c_char_p
        functions.groktime_instructions.argtypes = []
        functions.groktime_train.restype = c_int
        functions.groktime_train.argtypes = [
            *(c_void_p, POINTER(CRun), c_int64, c_int64, c_void_p, c_void_p)
        ]
        functions.groktime_gradients.restype = c_int
        functions.groktime_gradients.argtypes = [
            *(c_void_p, POINTER(CRun), c_void_p, c_int32, c_int64, c_int64),
            *(POINTER(c_double), c_void_p),
        ]
        functions.groktime_permutation.restype = None
        functions.groktime_permutation.argtypes = [c_uint64, c_int64, c_int32, c_void_p]

    @property
    def instructions(self) -> str:
        """The vector instructions the library was compiled for."""
        name: bytes = self._functions.groktime_instructions()
        return name.decode()

    def permutation(self, seed: int, epoch: int, count: int) -> NDArray[np.int32]:
        """The order of an epoch's examples, as C draws it."""
        order = np.empty(count, dtype=np.int32)
        self._functions.groktime_permutation(seed, epoch, count, order.ctypes.data)
        return order

    def workspace(self) -> Workspace:
        return Workspace(self._functions)


class Workspace:
    """The engine's memory: grows to the largest run it serves, freed with this object."""

    def __init__(self, functions: ctypes.CDLL) -> None:
        self._functions = functions
        self._handle = functions.groktime_workspace()
        if not self._handle:
            raise EngineError("no memory for the native engine")
        weakref.finalize(self, functions.groktime_free, self._handle)

    def train(
        self, run: Run, epochs_done: int, epochs: int, orders: NDArray[np.int64] | None = None
    ) -> NDArray[Any]:
        """Train so many epochs more; METRICS of shape [epochs]. `orders` is [epochs, n_train]."""
        metrics = np.empty(epochs, dtype=METRICS)
        given = None if orders is None else np.ascontiguousarray(orders, dtype=np.int32)
        self._check(
            self._functions.groktime_train(
                self._handle,
                run.structure,
                epochs_done + 1,
                epochs,
                None if given is None else given.ctypes.data,
                metrics.ctypes.data,
            )
        )
        return metrics

    def gradients(
        self, run: Run, batch: NDArray[np.integer[Any]], epoch: int = 1, step: int = 0
    ) -> tuple[float, NDArray[np.float32]]:
        """Mean loss of a batch of training examples and its flat gradient, weights untouched."""
        indices = np.ascontiguousarray(batch, dtype=np.int32)
        gradient, loss = np.empty_like(run.flat[0]), c_double()
        self._check(
            self._functions.groktime_gradients(
                *(self._handle, run.structure, indices.ctypes.data, len(indices)),
                *(epoch, step, loss, gradient.ctypes.data),
            )
        )
        return loss.value, gradient

    @staticmethod
    def _check(status: int) -> None:
        if status:
            raise EngineError("no memory for the native engine")


@lru_cache(maxsize=1)
def library() -> Library:
    """The library for this machine, compiled now if need be."""
    return Library(build())


def supports(spec: RunSpec) -> bool:
    """Whether the engine knows this model, a transformer of one head, and trains it so."""
    model = spec.model
    rows = spec.vocabulary * (TOKENS if model.positions == "learned" else 1)
    known = model.architecture == "transformer" and model.heads == 1 and rows <= MAX_TABLE_ROWS
    return known and spec.optimiser.warmup == 0


def flatten(spec: RunSpec, state: State) -> NDArray[np.float32]:
    """Weights and both moments as one array [3, P], in the order of workers/model.py."""
    names = [parameter.name for parameter in run_parameters(spec)]
    rows = [np.concatenate([state[prefix + n].ravel() for n in names]) for prefix in _PREFIXES]
    return np.array(rows, dtype=np.float32)


class NativeStack:
    """Implements workers.engines.Stack; runs may differ in everything, shapes too."""

    def __init__(
        self,
        specs: Sequence[RunSpec],
        *,
        states: Sequence[State] | None = None,
        epochs: Sequence[int] | None = None,
        datasets: Sequence[Dataset] | None = None,
        orders: Sequence[NDArray[np.int64]] | None = None,
        engine: Library | None = None,
    ) -> None:
        """Start each run from its state at its epoch, or from its seed.

        A replay gives its own `datasets` and `orders`: for each run [epochs, n_train], the order
        of examples in each epoch from the first.
        """
        for spec in specs:
            if not supports(spec):
                raise EngineError(f"the native engine does not know the model of run {spec.key}")
        self._library = engine or library()
        self._workspace = self._library.workspace()
        self._specs = list(specs)
        self._epochs = list(epochs) if epochs is not None else [0] * len(specs)
        self._orders = list(orders) if orders is not None else None
        self._runs: list[Run] = []
        for index, spec in enumerate(specs):
            state = states[index] if states is not None else initial_state(spec)
            data = datasets[index] if datasets is not None else make_dataset(spec)
            self._runs.append(make_run(spec, data, flatten(spec, state)))

    @property
    def specs(self) -> Sequence[RunSpec]:
        return self._specs

    @property
    def epochs(self) -> Sequence[int]:
        return self._epochs

    @property
    def fingerprint(self) -> str:
        """Python sources that decide data and weights, C sources, compiler, flags, processor."""
        made = self._library.build
        files = tuple(f"native/{path.name}" for path in source_files())
        return "; ".join(
            [
                "native",
                f"source {source_hash(files)}",
                "own matrix products",
                made.compiler,
                " ".join(made.flags),
                cpu_name(),
                self._library.instructions,
                "threads 1",
            ]
        )

    def advance(self, epochs: int) -> NDArray[Any]:
        """Train every model for `epochs` epochs; METRICS of shape [models, epochs]."""
        curves = np.empty((len(self._runs), epochs), dtype=METRICS)
        for index, (spec, run) in enumerate(zip(self._specs, self._runs, strict=True)):
            done = self._epochs[index]
            orders = self._orders[index][done : done + epochs] if self._orders else None
            curves[index] = self._workspace.train(run, done, epochs, orders)
            # One evaluation gives both; a run records what it asked for.
            if not spec.eval_train:
                curves[index]["train_correct_eval"] = -1
            if not spec.records_bits:
                curves[index]["bits"] = np.nan
            self._epochs[index] = done + epochs
        return curves

    def state(self, model: int) -> State:
        """A copy of the model's weights and moments by name."""
        state: dict[str, NDArray[Any]] = {}
        for prefix, row in zip(_PREFIXES, self._runs[model].flat, strict=True):
            start = 0
            for parameter in run_parameters(self._specs[model]):
                values = row[start : start + parameter.size]
                state[prefix + parameter.name] = values.reshape(parameter.shape).copy()
                start += parameter.size
        return state

    def remove(self, models: Sequence[int]) -> None:
        """Take models out of the stack; the others keep their order."""
        gone = set(models)
        kept = [index for index in range(len(self._runs)) if index not in gone]
        self._specs = [self._specs[index] for index in kept]
        self._epochs = [self._epochs[index] for index in kept]
        self._runs = [self._runs[index] for index in kept]
        if self._orders is not None:
            self._orders = [self._orders[index] for index in kept]
