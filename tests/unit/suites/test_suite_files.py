"""What a user may write into a suite file, and what is refused, where and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from groktime.service.errors import SuiteError
from groktime.service.suites import load_suite

Write = Callable[..., Path]

PLAIN = """\
description: a small suite
positions: none
primes: [5, 7]
seeds: [1, 2]
settings:
  batch_size: 8
axes:
  weight_decay: [0, 1]
stop: {max_epochs: 20}
speed:
  widths: [8, 12]
grok:
  widths: {from: 8, to: 16, step: 4}
capacity:
  primes: [7]
  seeds: [1]
  widths: [4]
  examples: [10, 20]
analysis:
  max_width: 16
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_suite(text: str, name: str = "mine") -> Path:
        path = tmp_path / f"{name}.yaml"
        path.write_text(text, "utf-8")
        return path

    return write_suite


def test_a_users_file_expands_by_the_same_schema(write: Write) -> None:
    suite = load_suite(write(PLAIN))
    assert suite.name == "mine"
    assert suite.counts() == {"speed": 16, "grok": 24, "capacity": 4}
    assert suite.axes == ("weight_decay",)
    assert suite.analysis.max_width == 16
    assert suite.analysis.thresholds.e_val == 0.98


def test_numbers_may_be_written_with_an_exponent(write: Write) -> None:
    suite = load_suite(write(PLAIN.replace("weight_decay: [0, 1]", "lr: [1e-3, 3E-4]")))
    assert {run.optimiser.lr for run in suite.runs()} == {1e-3, 3e-4}


def test_the_digest_ignores_wording_and_sees_everything_else(write: Write) -> None:
    suite = load_suite(write(PLAIN))
    reworded = load_suite(write(PLAIN.replace("a small suite", "another text")))
    reanalysed = load_suite(write(PLAIN.replace("max_width: 16", "max_width: 12")))
    longer = load_suite(write(PLAIN.replace("max_epochs: 20", "max_epochs: 21")))
    assert suite.digest == reworded.digest
    assert len({suite.digest, reanalysed.digest, longer.digest}) == 3


def test_a_user_suite_may_inherit_from_a_shipped_one(write: Write) -> None:
    suite = load_suite(write(PLAIN + "inherits:\n  - {suite: demo, kinds: [grok]}\n"))
    (inherited,) = suite.inherited
    assert len(inherited.members) == 18
    assert {tuple(m.setting.items()) for m in inherited.members} == {(("weight_decay", 1.0),)}


@pytest.mark.parametrize(
    ("old", "new", "line", "told"),
    [
        ("speed:\n  widths", "speed:\n  width", 11, "speed.width: unknown key; did you mean"),
        ("seeds: [1, 2]", "sead: [1, 2]", 4, "sead: unknown key"),
        ("[8, 12]", "[8, 13]", 11, "speed.widths[1]: 13 is odd"),
        ("[8, 12]", "[8, 8]", 11, "8 is given twice"),
        ("[8, 12]", "[]", 11, "speed.widths: is empty"),
        ("[8, 12]", "[8, x]", 11, "'x' is neither a whole number"),
        ("[8, 12]", "[8, 2.0]", 11, "2.0 is neither a whole number"),
        ("[8, 12]", "[8, true]", 11, "True is neither"),
        ("[8, 12]", "[8, 99998]", 11, "99998 is out of range; widths are 2 to 8192"),
        ("{from: 8, to: 16, step: 4}", "{from: 8, to: 18, step: 4}", 13, "never meets 18"),
        ("{from: 8, to: 16, step: 4}", "{from: 18, to: 8, step: 4}", 13, "is empty"),
        ("{from: 8, to: 16, step: 4}", "{from: 8, until: 16}", 13, "unknown key"),
        ("{from: 8, to: 16, step: 4}", "{from: 2, to: 99999999, step: 1}", 13, "at most 10000"),
        ("primes: [5, 7]", "primes: [5, 9]", 3, "9 is not a prime"),
        ("primes: [5, 7]", "primes: [5, 5]", 3, "5 is given twice"),
        ("primes: [5, 7]", "primes: []", 3, "primes: is empty"),
        ("primes: [5, 7]\n", "", 1, "primes: is missing"),
        ("primes: [5, 7]", "primes: [5, 10009]", 3, "less than or equal to 10007"),
        ("seeds: [1, 2]", "seeds: [-1]", 4, "-1 is negative"),
        ("weight_decay: [0, 1]", "weight_decy: [0, 1]", 8, "did you mean weight_decay"),
        ("weight_decay: [0, 1]", "weight_decay: []", 8, "is empty"),
        ("weight_decay: [0, 1]", "weight_decay: [1, 1.0]", 8, "1.0 is given twice"),
        ("weight_decay: [0, 1]", "weight_decay: [-1]", 8, "greater than or equal to 0"),
        ("weight_decay: [0, 1]", "weight_decay: [heavy]", 8, "heavy"),
        ("weight_decay: [0, 1]", "weight_decay: 1", 8, "1 is not a list"),
        ("weight_decay: [0, 1]", "weight_decay: [.inf]", 8, "inf"),
        ("weight_decay: [0, 1]", "heads: [1, 4]", 11, "multiple of 8"),
        ("weight_decay: [0, 1]", "depth: [1, 1000]", 8, "less than or equal to 128"),
        ("weight_decay: [0, 1]", "operation: [/, '^']", 8, "accepted: '+', '-', '*' or '/'"),
        ("weight_decay: [0, 1]", "train_fraction: [0.001]", 8, "leaves no training example"),
        ("batch_size: 8", "batch_size: 0", 6, "greater than or equal to 1"),
        ("batch_size: 8", "batch_size: whole", 6, "'whole' is not a whole number, full"),
        ("batch_size: 8", "positions: none", 6, "field of the suite itself"),
        ("batch_size: 8", "architecture: mlp", 6, "architecture mlp needs depth: 1"),
        ("positions: none", "positions: sinus", 2, "'sinus' is not accepted"),
        ("examples: [10, 20]", "examples: [10, 100000]", 18, "larger than the table"),
        ("  examples: [10, 20]\n", "", 14, "capacity.examples: is missing"),
        ("max_epochs: 20", "max_epochs: 0", 9, "greater than or equal to 1"),
        ("max_epochs: 20", "max_epochs: 100000000", 9, "less than or equal to"),
        ("max_width: 16", "thresholds: {t_gen: 0.999}", 20, "0.999 is above 0.99"),
        ("max_width: 16", "axes: [lr]", 20, "'lr' is not swept"),
        ("max_width: 16", "clock: atomic", 20, "'atomic' is not accepted"),
        ("positions: none", "positions: none\npositions: rope", 3, "positions: is given twice"),
        ("positions: none", "positions: &p none", 2, "anchors and aliases"),
        ("positions: none", "positions: !!python/name:os.system", 2, "tag"),
        ("positions: none", "positions: [", 4, "not valid YAML"),
        ("batch_size: 8", "batch_size: 999999999999", 6, "less than or equal to 100000000"),
        ("batch_size: 8", "batch_size: {steps: x}", 6, "'x' is not accepted"),
        ("a small suite", "'  '", 1, "description: '  ' is blank"),
        ("[8, 12]", "{near_params: [-5]}", 11, "near_params[0]: -5 is not a number of parameters"),
        ("[8, 12]", "{near_params: [x]}", 11, "near_params[0]: 'x' is neither a whole number"),
        ("[8, 12]", "{near_params: [500], tolerance: 7}", 11, "tolerance: 7"),
        ("[8, 12]", "{fitting_heads: []}", 11, "fitting_heads: is empty"),
        ("max_epochs: 20", "patience: 99999999999", 9, "less than or equal to 10000000"),
        ("max_epochs: 20", "min_improvement: 2", 9, "less than or equal to 1"),
        ("max_width: 16", "max_width: 4", 20, "4 leaves no speed run; the smallest width is 8"),
        ("max_width: 16", "baselines: [log_p, log_p]", 20, "baselines[1]: 'log_p' is given twice"),
        ("max_width: 16", "baselines: []", 20, "analysis.baselines: is empty"),
        ("max_width: 16", "axes: [weight_decay, weight_decay]", 20, "is given twice"),
        ("max_width: 16", "axes: []", 20, "analysis.axes: is empty"),
        ("max_width: 16", "fraction_window: [0.3, 0.1]", 20, "[0.3, 0.1] is no window; accepted"),
        ("max_width: 16", "fraction_window: [0.1, 0.1]", 20, "the lower one first"),
        ("max_width: 16", "fraction_window: [-1, 0.1]", 20, "from 0 to 1e+06"),
    ],
)
def test_a_wrong_value_is_refused_with_line_field_and_what_is_accepted(
    write: Write,
    old: str,
    new: str,
    line: int,
    told: str,
) -> None:
    assert old in PLAIN
    path = write(PLAIN.replace(old, new, 1))
    with pytest.raises(SuiteError) as refusal:
        load_suite(path)
    message = str(refusal.value)
    assert told in message
    assert f"mine.yaml, line {line}:" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("- 1\n- 2\n", "not a mapping"),
        ("description: " + "x" * 300_000, "larger than 256 KB"),
        ("description: x\nseeds: " + "[" * 50 + "]" * 50, "nested deeper"),
        ("description: x\nprimes: [5]\nseeds: [1]\n", "at least one of speed, grok, capacity"),
    ],
)
def test_files_that_are_no_suites_are_refused(write: Write, text: str, told: str) -> None:
    with pytest.raises(SuiteError, match=told):
        load_suite(write(text))


@pytest.mark.parametrize("character", ["\\e", "\\a", "\\u202E", "\\u2066", "\\x7F"])
@pytest.mark.parametrize("field", ["description", "notes"])
def test_what_a_terminal_would_act_on_is_refused(write: Write, field: str, character: str) -> None:
    described = PLAIN if field == "notes" else "".join(PLAIN.splitlines(True)[1:])
    with pytest.raises(SuiteError, match=f"{field}: a text with the character U\\+") as refused:
        load_suite(write(f'{field}: "harmless{character}[31m"\n{described}'))
    assert str(refused.value).isprintable()


def test_a_long_value_is_not_repeated_in_the_message(write: Write) -> None:
    with pytest.raises(SuiteError, match="notes: ") as refused:
        load_suite(write(PLAIN + f"notes: {'x' * 200_000}\n"))
    assert len(str(refused.value)) < 1000


def test_an_absurd_number_of_runs_is_refused_before_it_is_built(write: Write) -> None:
    text = PLAIN.replace("seeds: [1, 2]", "seeds: {from: 1, to: 9999}").replace(
        "[0, 1]", "[" + ", ".join(str(i) for i in range(100)) + "]"
    )
    with pytest.raises(SuiteError, match="more than 1,000,000 runs"):
        load_suite(write(text))


def test_variants_count_towards_an_absurd_number_of_runs(write: Write) -> None:
    variants = "\n".join(f"  v{i}: {{lr: {i + 1}.0e-6}}" for i in range(1001))
    text = PLAIN.replace("seeds: [1, 2]", "seeds: {from: 1, to: 1000}") + f"variants:\n{variants}\n"
    with pytest.raises(SuiteError, match="more than 1,000,000 runs"):
        load_suite(write(text))


def test_a_donor_that_is_not_there_is_told_with_its_place(write: Write) -> None:
    path = write(PLAIN + "inherits:\n  - suite: nowhere\n")
    with pytest.raises(SuiteError, match=r"line \d+: inherits\[0\]\.suite: .*'nowhere'"):
        _ = load_suite(path).inherited


def test_unknown_names_and_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r"'cental' does not exist.*central"):
        load_suite("cental")
    with pytest.raises(SuiteError, match="No such file"):
        load_suite(tmp_path / "none.yaml")


def test_a_file_may_not_take_the_name_of_a_shipped_suite(write: Write) -> None:
    with pytest.raises(SuiteError, match="give it another name"):
        load_suite(write(PLAIN, "central"))


@pytest.mark.parametrize(
    "path", ["/dev/zero", "/dev/stdin/", "a\0.yaml", "a\nb.yaml", "x" * 5000 + ".yaml", "./"]
)
def test_a_path_that_leads_to_no_text_is_refused_in_one_line(path: str) -> None:
    with pytest.raises(SuiteError) as refusal:
        load_suite(path)
    assert "\n" not in str(refusal.value)
