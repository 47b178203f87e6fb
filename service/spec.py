"""A run: everything that can change its result, its key, and what follows from it by arithmetic.

Also what every layer must agree on: the metrics of an epoch, the ladder of thresholds, the ways a
run can end, and the columns that make up a setting.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

Kind = Literal["capacity", "speed", "grok"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Operation = Literal["+", "-", "*", "/"]
OPERATION_WORDS: dict[str, Operation] = {
    "addition": "+",
    "subtraction": "-",
    "multiplication": "*",
    "division": "/",
}
Split = Literal["random", "sequential", "alternating"]
Positions = Literal["rope", "none", "learned"]
StoppedBy = Literal["threshold", "patience", "cap", "fixed", "diverged", "set_aside"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended; `epochs` is its last epoch, `seconds` its share of the stack's time."""

    state: Literal["done", "failed", "set_aside"]
    reason: str | None = None
    stopped_by: StoppedBy
    epochs: int
    seconds: float
    engine: str
    device: str
    fingerprint: str


TOKENS = 4  # every example is [a, operator, b, equals]
S5_ORDER = 120  # elements of the symmetric group on five letters
SPEC_VERSION = 1  # part of every run key: raise it when the meaning of a field changes

# Sizes beyond these are mistakes, not experiments.
MAX_PRIME = 10_007
MAX_WIDTH = 8_192
MAX_DEPTH = 128
MAX_EPOCHS = 10_000_000

# Names of suites, wherever they come from: files, dumps, requests.
SUITE_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,99}$"

# One epoch of one run, in the order of the curve table and of the engines' buffers; types as numpy
# names them. Counts that a run does not record are -1 and reals NaN.
METRICS: tuple[tuple[str, str], ...] = (
    ("train_loss", "f4"),  # mean over the epoch's examples, dropout on
    ("train_correct", "i4"),  # online clock
    ("train_correct_eval", "i4"),  # eval clock: after the epoch, dropout off
    ("val_loss", "f4"),  # after the epoch, dropout off
    ("val_correct", "i4"),
    ("bits", "f4"),  # M_T of the training set after the epoch, dropout off
    ("weight_norm", "f4"),  # L2 norm of all parameters after the epoch
)
COUNTS: tuple[str, ...] = tuple(name for name, kind in METRICS if kind == "i4")

# Thresholds whose first passages are stored, in thousandths: 50 % to 99 % in steps of 1 %, then to
# 99.9 % in steps of 0.1 %.
LADDER: tuple[int, ...] = (*range(500, 990, 10), *range(990, 1000))


def needed(threshold: float, n: int) -> int:
    """Correct answers that reach the threshold on n examples: ceil(τ·n), exactly.

    The decimal that was written is meant, not the binary number nearest to it, so that 0.99 of
    100 examples is 99 and not 100.
    """
    exact = Fraction(repr(float(threshold))) * n
    return -(-exact.numerator // exact.denominator)


def ladder_index(threshold: float) -> int | None:
    """Position of the threshold in the ladder, counted from 1 as Postgres counts; None if off."""
    thousandths = Fraction(repr(float(threshold))) * 1000
    if thousandths.denominator != 1 or thousandths.numerator not in LADDER:
        return None
    return LADDER.index(thousandths.numerator) + 1


def operation_symbol(value: Any) -> Any:
    """`addition` → `+` and so on; everything else as it is."""
    return OPERATION_WORDS.get(value, value) if isinstance(value, str) else value


def is_prime(number: int) -> bool:
    """Trial division: the primes of this field are small."""
    return number >= 2 and all(number % q for q in range(2, math.isqrt(number) + 1))


# Adding zero turns -0.0 into 0.0, so that both have one key.
Real = Annotated[float, AfterValidator(lambda value: value + 0.0)]


NamedOperation = Annotated[Operation, BeforeValidator(operation_symbol)]  # `+` or `addition`


def _prime(value: int) -> int:
    if not is_prime(value):
        raise ValueError(f"{value} is not a prime")
    return value


def later(neutral: Any, **rules: Any) -> Any:
    """A field that older runs do not have: at its neutral value they are the same experiment.

    The neutral value is the default and is left out of the canonical JSON, so that no recorded
    run's key changes when the field is added.
    """
    return Field(default=neutral, json_schema_extra={"later": True}, **rules)


def added_later(field: FieldInfo) -> bool:
    """Whether the field was made by `later`."""
    extra = field.json_schema_extra
    return isinstance(extra, dict) and bool(extra.get("later"))


class _Part(BaseModel):
    """Frozen and strict about names; numbers are typed before they are hashed."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @cached_property
    def canonical_json(self) -> str:
        """Sorted keys, floats in shortest exact form; no value left out but neutral later ones."""
        neutral = {
            name
            for name, field in type(self).model_fields.items()
            if added_later(field) and getattr(self, name) == field.default
        }
        content = self.model_dump(mode="json", exclude=neutral)
        return json.dumps(content, sort_keys=True, separators=(",", ":"))


class RandomData(_Part):
    """n inputs uniform over all V⁴ token sequences with labels uniform over V."""

    task: Literal["random"] = "random"
    prime: int = Field(ge=2, le=MAX_PRIME, description="p of the task compared with; 120 for S5")
    n: int = Field(ge=1, le=100_000_000)

    @field_validator("prime")
    @classmethod
    def _prime_or_group(cls, value: int) -> int:
        return value if value == S5_ORDER else _prime(value)

    @model_validator(mode="after")
    def _fits(self) -> RandomData:
        table = (self.prime + 2) ** TOKENS
        if self.n > table:
            raise ValueError(f"n = {self.n} is larger than the table of {table} inputs")
        return self

    @property
    def n_train(self) -> int:
        return self.n

    @property
    def n_val(self) -> int:
        return 0


class _TableData(_Part):
    """A full table of pairs (a, b), split into training and validation examples."""

    train_fraction: Real = Field(
        default=0.5, gt=0, lt=1, description="share of the table that is trained on"
    )
    split: Split = Field(default="random", description="which part of the table that is")

    @property
    def shape(self) -> tuple[int, int]:
        """Number of values of a and of b."""
        raise AssertionError("every table names its shape")

    @property
    def n_full(self) -> int:
        rows, columns = self.shape
        return rows * columns

    @property
    def n_train(self) -> int:
        rows, columns = self.shape
        if self.split == "sequential":
            return rows * int(self.train_fraction * columns)
        if self.split == "alternating":
            return rows * ((columns + 1) // 2)
        return int(self.train_fraction * self.n_full)

    @property
    def n_val(self) -> int:
        return self.n_full - self.n_train

    @model_validator(mode="after")
    def _train_set_exists(self) -> _TableData:
        if self.split == "alternating" and self.train_fraction != 0.5:
            raise ValueError("split alternating trains every other b: train_fraction must be 0.5")
        if self.n_train < 1:
            raise ValueError(f"train_fraction = {self.train_fraction} leaves no training example")
        return self


class _ModularTable(_TableData):
    prime: int = Field(ge=2, le=MAX_PRIME)
    operation: NamedOperation = "/"

    _check_prime = field_validator("prime")(_prime)

    @property
    def shape(self) -> tuple[int, int]:
        return self.prime, self.prime - 1 if self.operation == "/" else self.prime


class ModularData(_ModularTable):
    """y = a ∘ b mod p over all pairs; division leaves b = 0 out."""

    task: Literal["modular"] = "modular"


class ShuffledData(_ModularTable):
    """The modular task's training inputs with their labels permuted: a control for T_mem."""

    task: Literal["shuffled"] = "shuffled"

    @property
    def n_val(self) -> int:
        return 0


class PermutationData(_TableData):
    """Composition in S5: y = a∘b (b first), elements in lexicographic order."""

    task: Literal["permutation"] = "permutation"

    @property
    def prime(self) -> int:
        return S5_ORDER

    @property
    def shape(self) -> tuple[int, int]:
        return S5_ORDER, S5_ORDER


Data = Annotated[
    RandomData | ModularData | ShuffledData | PermutationData, Field(discriminator="task")
]


class ModelSpec(_Part):
    """The network: a decoder-only transformer of four tokens, or an MLP on their embeddings."""

    architecture: Literal["transformer", "mlp"] = Field(
        default="transformer", description="the network; an MLP has depth 1 and no positions"
    )
    width: int = Field(ge=2, le=MAX_WIDTH, description="d, units of the residual stream")
    depth: int = Field(default=2, ge=1, le=MAX_DEPTH, description="L, blocks")
    heads: int = Field(default=1, ge=1, description="H, attention heads")
    positions: Positions = Field(default="rope", description="how the network sees order")
    norm: Literal["rms", "layer"] = Field(default="rms", description="normalisation")
    ffn: Literal["gated", "plain"] = Field(default="gated", description="feed-forward layer")
    released_head_projection: bool = Field(
        default=False, description="second, biased projection after the heads (released code)"
    )
    dropout: Real = Field(
        default=0.2, ge=0, lt=1, description="probability on the FFN's hidden units"
    )
    init_scale: Real = Field(default=1.0, gt=0, description="factor on every initial parameter")

    @model_validator(mode="after")
    def _can_exist(self) -> ModelSpec:
        if self.width % 2:
            raise ValueError(f"width = {self.width} is odd; widths are even")
        if self.width % (2 * self.heads):
            raise ValueError(
                f"width = {self.width} does not divide into heads = {self.heads}: "
                f"width must be a multiple of {2 * self.heads}"
            )
        if self.released_head_projection and self.heads == 1:
            raise ValueError("released_head_projection exists only with heads > 1")
        if self.architecture == "mlp":
            # One identity for one network: what an MLP does not have is fixed.
            fixed = {"depth": 1, "heads": 1, "positions": "none", "norm": "rms", "ffn": "plain"}
            for name, value in fixed.items():
                if getattr(self, name) != value:
                    raise ValueError(f"architecture mlp needs {name}: {value}")
        return self

    @property
    def hidden(self) -> int:
        """Units of the FFN's hidden layer, where dropout acts."""
        return 4 * self.width

    def params(self, vocabulary: int) -> int:
        """Trainable parameters: 2Vd + L(16d² + 2d) + d for the central model."""
        d = self.width
        norm = d if self.norm == "rms" else 2 * d
        if self.architecture == "mlp":
            return 2 * vocabulary * d + 20 * d * d + norm
        ffn = (12 if self.ffn == "gated" else 8) * d * d
        projection = d * d + d if self.released_head_projection else 0
        positions = TOKENS * d if self.positions == "learned" else 0
        layers = self.depth * (4 * d * d + projection + ffn + 2 * norm)
        return 2 * vocabulary * d + positions + layers + norm


class OptimiserSpec(_Part):
    """AdamW on all parameters."""

    lr: Real = Field(default=1e-3, gt=0, description="learning rate")
    beta1: Real = Field(default=0.9, ge=0, lt=1, description="decay of the first moment")
    beta2: Real = Field(default=0.98, ge=0, lt=1, description="decay of the second moment")
    eps: Real = Field(default=1e-8, gt=0, description="added to the root of the second moment")
    weight_decay: Real = Field(default=1.0, ge=0, description="decoupled weight decay λ")
    batch_size: int = Field(default=512, ge=1, le=100_000_000, description="examples a step")
    warmup: int = later(
        0, ge=0, le=100_000_000, description="first steps, over which lr rises from 0, linearly"
    )


# What is called a setting: every column of data, model and optimiser but prime and width. Two runs
# of one cell agree in all of them.
DATA_COLUMNS = ("task", "operation", "train_fraction", "split")
MODEL_COLUMNS = tuple(name for name in ModelSpec.model_fields if name != "width")
OPTIMISER_COLUMNS = tuple(OptimiserSpec.model_fields)
SETTING_COLUMNS = (*DATA_COLUMNS, *MODEL_COLUMNS, *OPTIMISER_COLUMNS)


class ThresholdStop(_Part):
    """Stop once every recorded training clock, and validation if named, has reached its mark."""

    rule: Literal["threshold"] = "threshold"
    train: Real = Field(default=0.99, gt=0, le=1)
    val: Real | None = Field(default=None, gt=0, le=1)
    max_epochs: int = Field(default=5000, ge=1, le=MAX_EPOCHS)


class PatienceStop(_Part):
    """Stop when the online training loss has not improved for `patience` epochs."""

    rule: Literal["patience"] = "patience"
    patience: int = Field(default=100, ge=1)
    min_improvement: Real = Field(default=1e-4, ge=0)
    max_epochs: int = Field(default=5000, ge=1, le=MAX_EPOCHS)


class FixedStop(_Part):
    """Train for exactly max_epochs."""

    rule: Literal["fixed"] = "fixed"
    max_epochs: int = Field(ge=1, le=MAX_EPOCHS)


Stop = Annotated[ThresholdStop | PatienceStop | FixedStop, Field(discriminator="rule")]


class RunSpec(_Part):
    """One experiment. Device and engine are not here: they belong to the attempt."""

    kind: Kind
    data: Data
    model: ModelSpec
    optimiser: OptimiserSpec = OptimiserSpec()
    stop: Stop
    eval_train: bool = Field(default=True, description="also record the eval clock (a pass more)")
    seed: int = Field(ge=0, lt=2**63)

    @model_validator(mode="after")
    def _kind_fits_data(self) -> RunSpec:
        validated = self.data.n_val > 0
        if self.kind == "grok" and not validated:
            raise ValueError(f"kind grok needs a validation set; data {self.data.task} has none")
        if self.kind == "speed" and validated:
            raise ValueError("kind speed trains on random or shuffled labels")
        if isinstance(self.stop, ThresholdStop) and self.stop.val is not None and not validated:
            raise ValueError("stop.val needs a validation set")
        return self

    @cached_property
    def key(self) -> str:
        """sha256 of the canonical JSON: the same key is the same experiment."""
        return hashlib.sha256(self.canonical_json.encode()).hexdigest()

    @cached_property
    def canonical_json(self) -> str:
        """The spec and its version; parts shared by many runs are written once."""
        return (
            f'{{"data":{self.data.canonical_json},"eval_train":{json.dumps(self.eval_train)},'
            f'"kind":"{self.kind}","model":{self.model.canonical_json},'
            f'"optimiser":{self.optimiser.canonical_json},"seed":{self.seed},'
            f'"stop":{self.stop.canonical_json},"version":{SPEC_VERSION}}}'
        )

    @property
    def vocabulary(self) -> int:
        """V: the elements, the operator token and the equals token."""
        return self.data.prime + 2

    @property
    def params(self) -> int:
        return self.model.params(self.vocabulary)

    @property
    def k_mem(self) -> float:
        """Dataset complexity in bits, n_train · log2 V."""
        return self.data.n_train * math.log2(self.vocabulary)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.data.n_train // self.optimiser.batch_size)

    @property
    def records_bits(self) -> bool:
        """M_T is measured every epoch for capacity runs only."""
        return self.kind == "capacity"

    def columns(self) -> dict[str, Any]:
        """The spec flattened into the columns that people filter and sort by."""
        data, model, optimiser = self.data, self.model, self.optimiser
        return {
            "kind": self.kind,
            "task": data.task,
            "prime": data.prime,
            "operation": getattr(data, "operation", None),
            "train_fraction": getattr(data, "train_fraction", None),
            "split": getattr(data, "split", None),
            "n_train": data.n_train,
            "n_val": data.n_val,
            "vocabulary": self.vocabulary,
            "k_mem": self.k_mem,
            **model.model_dump(),
            "params": self.params,
            **optimiser.model_dump(),
            "stop_rule": self.stop.rule,
            "stop_train": getattr(self.stop, "train", None),
            "stop_val": getattr(self.stop, "val", None),
            "max_epochs": self.stop.max_epochs,
            "eval_train": self.eval_train,
            "seed": self.seed,
        }
