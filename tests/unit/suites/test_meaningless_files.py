"""Files whose fields are all well-formed but say something that would have no effect, or twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from groktime.service.errors import SuiteError
from groktime.service.suites import load_suite
from groktime.service.suites.loader import MAX_DONORS

PLAIN = {
    "description": "a small suite",
    "primes": "[5, 7]",
    "seeds": "[1, 2]",
    "speed": "{widths: [8, 12]}",
    "grok": "{widths: [8, 12]}",
}
LR = "{lr: [0.1, 0.2]}"
TWO = "{a: {lr: 0.1}, b: {lr: 0.2}}"


def write(folder: Path, name: str = "mine", **fields: str | None) -> Path:
    """A suite file of one line a field; None leaves a field out."""
    path = folder / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = {**PLAIN, **fields}.items()
    path.write_text("".join(f"{key}: {value}\n" for key, value in lines if value is not None))
    return path


def refusal(path: Path) -> str:
    with pytest.raises(SuiteError) as refused:
        load_suite(path)
    message = str(refused.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("fields", "line", "told"),
    [
        ({"axes": LR, "settings": "{lr: 0.5}"}, 7, "settings.lr: 0.5 is set, but lr is swept"),
        ({"axes": LR, "grok": "{widths: [8], settings: {lr: 1}}"}, 5, "grok.settings.lr: 1.0 is"),
        ({"axes": LR, "variants": "{a: {lr: 0.3}}"}, 7, "variants.a.lr: 0.3 is set"),
        ({"axes": "{labels: [random, shuffled]}", "speed": None}, 5, "only speed runs read it"),
        (
            {
                "axes": "{train_fraction: [0.3, 0.5]}",
                "speed": None,
                "grok": None,
                "capacity": "{widths: [8], examples: [10]}",
            },
            4,
            "axes.train_fraction: is swept, but capacity runs do not read it",
        ),
        ({"speed": "{widths: [8], stop: {val: 0.5}}"}, 4, "speed.stop.val: 0.5 is read by no"),
        ({"grok": "{widths: [8], stop: {patience: 5}}"}, 5, "accepted: train, val, max_epochs"),
        ({"stop": "{patience: 5}"}, 6, "stop.patience: 5 is read by no speed or grok run"),
        ({"variants": "{a: {lr: 0.1}, b: {lr: 0.1}}"}, 6, "variants.b: is the same as variant a"),
        ({"variants": "{a: {lr: 0.001}, b: {}}"}, 6, "variants.b: is the same as variant a"),
        ({"variants": "{'': {lr: 0.1}}"}, 6, "'' is no name of a variant; accepted: 1 to 100"),
        ({"variants": "{%s: {lr: 0.1}}" % ("x" * 101)}, 6, "is no name of a variant"),
        (
            {"variants": TWO, "speed": "{widths: [8], variants: [a, a]}"},
            4,
            "speed.variants[1]: 'a' is given twice",
        ),
        (
            {"variants": TWO, "speed": "{widths: [8], variants: [a]}", "grok": None},
            5,
            "variants.b: no block trains this variant",
        ),
        (
            {"capacity": "[{widths: [8], examples: [10]}, {widths: [8], examples: [10]}]"},
            6,
            "capacity[1]: repeats a run of capacity[0] (prime 5, width 8, 10 examples, seed 1)",
        ),
        (
            {"capacity": "[{widths: [8], examples: [10, 12]}, {widths: [6, 8], examples: [12]}]"},
            6,
            "width 8, 12 examples, seed 1); name each run in one block",
        ),
        ({"speed": "[{widths: [8]}, {widths: [10, 8]}]"}, 4, "speed[1]: repeats a run of speed[0]"),
        ({"settings": "{eval_train: false}", "analysis": "{clock: eval}"}, 7, "accepted: 'online'"),
        ({"inherits": "[{suite: demo, kinds: [grok, grok]}]"}, 6, "'grok' is given twice"),
        ({"inherits": "[{suite: demo, kinds: []}]"}, 6, "inherits[0].kinds: is empty"),
        ({"inherits": "[{suite: demo}, {suite: demo}]"}, 6, "[1]: is the same as inherits[0]"),
        (
            {"inherits": "[{suite: central, primes: [97, 5]}]"},
            6,
            "inherits[0].primes: 5 is not a prime of suite central; accepted: 97, 101",
        ),
        (
            {"inherits": "[{suite: central, kinds: [capacity], primes: [97]}]"},
            6,
            "accepted: 113",
        ),
        (
            {"task": "permutation", "primes": None, "speed": "{widths: [8], primes: [7]}"},
            3,
            "speed.primes: task permutation is S5 alone",
        ),
        (
            {"task": "permutation", "primes": None, "settings": "{operation: '+'}"},
            6,
            "settings.operation: task permutation has none",
        ),
    ],
)
def test_what_would_have_no_effect_is_refused_with_its_line(
    tmp_path: Path, fields: dict[str, str | None], line: int, told: str
) -> None:
    message = refusal(write(tmp_path, **fields))
    assert told in message
    assert f"mine.yaml, line {line}:" in message


def test_blocks_may_share_a_cell_when_they_share_no_run(tmp_path: Path) -> None:
    blocks = "[{widths: [8], examples: [10]}, {widths: [8], examples: [12]}]"
    assert load_suite(write(tmp_path, capacity=blocks)).counts()["capacity"] == 8


def test_variants_that_differ_in_one_block_only_are_two(tmp_path: Path) -> None:
    differing = "{widths: [8], settings: {lr: 0.1}}"
    suite = load_suite(write(tmp_path, variants="{a: {lr: 0.001}, b: {}}", speed=differing))
    assert suite.counts()["speed"] == 8


def test_a_suite_cannot_inherit_from_itself(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, inherits="[{suite: ../x/mine.yaml}]", name="../x/mine"))
    assert "line 6: inherits[0].suite: '../x/mine.yaml' creates an inheritance cycle" in message


def test_suites_cannot_inherit_in_a_circle(tmp_path: Path) -> None:
    for name, donor in (("one", "two"), ("two", "three"), ("three", "one")):
        write(tmp_path, name, inherits=f"[{{suite: {donor}.yaml}}]")
    message = refusal(tmp_path / "one.yaml")
    assert "three.yaml, line 6: inherits[0].suite: 'one.yaml' creates an inheritance" in message


def test_two_suites_may_share_a_donor(tmp_path: Path) -> None:
    write(tmp_path, "base")
    write(tmp_path, "between", seeds="[3]", inherits="[{suite: base.yaml}]")
    both = "[{suite: base.yaml}, {suite: between.yaml}]"
    suite = load_suite(write(tmp_path, seeds="[4]", inherits=both))
    assert [len(donor.members) for donor in suite.inherited] == [16, 8]


def test_a_missing_donor_of_a_donor_is_told_with_its_place(tmp_path: Path) -> None:
    write(tmp_path, "between", inherits="[{suite: gone.yaml}]")
    message = refusal(write(tmp_path, inherits="[{suite: between.yaml}]"))
    assert "between.yaml, line 6: inherits[0].suite: " in message
    assert "gone.yaml: No such file" in message


def test_a_chain_of_donors_has_an_end(tmp_path: Path) -> None:
    for number in range(MAX_DONORS + 3):
        write(tmp_path, f"s{number}", inherits=f"[{{suite: s{number + 1}.yaml}}]")
    assert f"more than {MAX_DONORS} donors away from s0" in refusal(tmp_path / "s0.yaml")


def test_the_digest_sees_every_entry_of_one_donor(tmp_path: Path) -> None:
    write(tmp_path, "base")
    two = "[{suite: base.yaml, kinds: [%s]}, {suite: base.yaml, kinds: [grok], primes: [5]}]"
    one = load_suite(write(tmp_path, seeds="[3]", inherits=two % "speed"))
    first = one.digest
    write(tmp_path, "base", speed="{widths: [8, 16]}")
    assert load_suite(one.path).digest != first
