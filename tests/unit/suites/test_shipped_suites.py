"""The shipped suites are the paper's: their sizes, grids and inherited cells."""

from __future__ import annotations

import pytest

from groktime.service.errors import SuiteError
from groktime.service.suites import load_suite, shipped_suites
from groktime.service.suites.loader import cell_suite

FIVE = {97, 107, 113, 127, 139}
TEN = {97, 101, 103, 107, 109, 113, 127, 131, 137, 139}

# speed, grok, capacity
COUNTS = {
    "central": (4400, 14300, 56),
    "weight_decay": (3150, 3360, 168),
    "learning_rate": (1500, 1600, 120),
    "init_scale": (2250, 2400, 72),
    "train_fraction": (1500, 1600, 0),
    "depth": (596, 596, 90),
    "addition": (300, 320, 0),
    "multiplication": (300, 320, 0),
    "subtraction": (300, 320, 0),
    "dropout": (1200, 1280, 96),
    "heads": (1040, 1140, 93),
    "architecture": (1200, 1280, 96),
}
OTHERS = {
    "permutations",
    "control_labels",
    "batch_size",
    "last_batch",
    "mini",
    "central-two-cores",
    "central-mid-widths",
    "central-narrow-widths",
    "eval-clock",
    "central-balanced",
    "capacity-protocols",
    "capacity-patience",
    "weight_decay-two-cores",
    "operations-two-cores",
    "control_labels-two-cores",
    "dropout-two-cores",
    "train_fraction-two-cores",
    "small_decay-two-cores",
    "permutations-two-cores",
    "init_scale-two-cores",
    "depth-two-cores",
    "learning_rate-two-cores",
    "learning_rate-slow",
    "learning_rate-fast",
    "weight_decay-seeds",
    "train_fraction-high",
    "heads-mini",
    "architecture-mini",
    "figure4",
    "demo",
}


def test_every_suite_of_the_paper_is_shipped() -> None:
    assert set(shipped_suites()) == set(COUNTS) | OTHERS


@pytest.mark.parametrize("suffix", ["", "-released"])
@pytest.mark.parametrize("name", sorted(COUNTS))
def test_run_counts_are_those_of_the_paper(name: str, suffix: str) -> None:
    counts = load_suite(name + suffix).counts()
    assert (counts["speed"], counts["grok"], counts["capacity"]) == COUNTS[name]


def test_located_operations_share_their_speed_runs_too() -> None:
    speeds: dict[str, int] = {}
    for member in load_suite("operations-two-cores").members():
        if member.spec.kind == "speed":
            speeds[member.spec.key] = speeds.get(member.spec.key, 0) + 1
    assert len(speeds) == 5 * 5 * 69  # primes × seeds × widths, whatever the operation


def test_a_located_cell_takes_a_minimum_delay_and_keeps_its_name_without_one() -> None:
    plain = cell_suite(59, {"positions": "none"})
    asked = cell_suite(59, {"positions": "none"}, min_delay=5, min_delay_share=0.1)
    assert (asked.file.analysis.min_delay, asked.file.analysis.min_delay_share) == (5, 0.1)
    assert plain.file.analysis.min_delay is None
    assert plain.name == cell_suite(59, {"positions": "none"}, min_delay=None).name
    assert asked.name != plain.name
    with pytest.raises(SuiteError, match="min_delay"):
        cell_suite(59, {}, min_delay=0.5)


def test_a_located_cell_has_the_widths_that_its_heads_divide() -> None:
    widths: dict[int, set[int]] = {}
    for member in load_suite("heads-mini").members():
        widths.setdefault(member.spec.model.heads, set()).add(member.spec.model.width)
    assert widths == {2: set(range(16, 97, 4)), 4: set(range(16, 97, 8))}


def test_the_operations_share_their_speed_runs() -> None:
    keys = [
        {run.key for run in load_suite(name).runs() if run.kind == "speed"}
        for name in ("addition", "multiplication", "subtraction")
    ]
    assert keys[0] == keys[1] == keys[2]


@pytest.mark.parametrize("name", sorted(set(COUNTS) | OTHERS))
def test_a_released_suite_has_no_rotary_positions_and_is_otherwise_the_same(name: str) -> None:
    suite, twin = load_suite(name), load_suite(name + "-released")
    assert twin.name == name + "-released"
    for run, other in zip(suite.runs(), twin.runs(), strict=True):
        changed = run.model.positions == "rope"
        expected = run.model.model_copy(update={"positions": "none"}) if changed else run.model
        assert other.model == expected
        assert (other.data, other.optimiser, other.stop, other.seed) == (
            run.data,
            run.optimiser,
            run.stop,
            run.seed,
        )
    assert all(donor.endswith("-released") for donor in twin.inherits)


@pytest.mark.parametrize("name", sorted((set(COUNTS) | OTHERS) - {"demo"}))
def test_suites_follow_the_text_in_having_rotary_positions(name: str) -> None:
    assert any(run.model.positions == "rope" for run in load_suite(name).runs())


@pytest.mark.parametrize(
    ("name", "primes", "setting"),
    [
        ("weight_decay", TEN, {"weight_decay": 1.0}),
        ("train_fraction", TEN, {"train_fraction": 0.5}),
        ("addition", FIVE, {"operation": "/"}),
        ("subtraction", FIVE, {"operation": "/"}),
        ("multiplication", FIVE, {"operation": "/"}),
    ],
)
def test_inherited_cells_are_the_central_ones(
    name: str, primes: set[int], setting: dict[str, object]
) -> None:
    suite = load_suite(name)
    (inherited,) = suite.inherited
    assert inherited.suite == "central"
    cells = {
        (member.prime, tuple(member.setting.items()))
        for member in inherited.members
        if member.spec.kind != "capacity"
    }
    assert cells == {(prime, tuple(setting.items())) for prime in primes}
    donor = {run.key for run in load_suite("central").runs()}
    assert {member.spec.key for member in inherited.members} <= donor
    assert {member.spec.seed for member in inherited.members} == set(range(42, 52))


@pytest.mark.parametrize("name", ["init_scale", "learning_rate", "depth", "dropout", "heads"])
def test_other_suites_keep_their_own_baseline(name: str) -> None:
    assert load_suite(name).inherits == ()


def test_depth_says_which_sizes_it_leaves_out() -> None:
    suite = load_suite("depth")
    # 7 targets × 5 depths × 5 primes, in speed and grok each
    assert len(suite.left_out) == 2 * (7 * 25 - 596 // 4)
    first = suite.left_out[0]
    assert abs(first.nearest - first.target) > 0.15 * first.target
    assert str(first.target) in str(first)
    for run in suite.runs():
        if run.kind != "capacity":
            targets = (5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5)
            assert min(abs(run.params - t) / t for t in targets) <= 0.15


def test_capacity_runs_train_on_random_labels_without_dropout_until_patience_ends() -> None:
    for run in load_suite("central").runs():
        if run.kind == "capacity":
            assert (run.data.task, run.model.dropout, run.stop.rule) == ("random", 0.0, "patience")
            assert (run.data.prime, run.seed) == (113, 42)


def test_swept_dropout_reaches_the_capacity_runs_too() -> None:
    runs = load_suite("dropout").runs()
    for kind in ("capacity", "speed", "grok"):
        values = {run.model.dropout for run in runs if run.kind == kind}
        assert values == {0.0, 0.1, 0.2, 0.4}


def test_speed_runs_have_as_many_examples_as_the_task_they_are_compared_with() -> None:
    suite = load_suite("train_fraction")
    sizes: dict[tuple[int, float], dict[str, set[int]]] = {}
    for member in suite.members():
        cell = (member.prime, member.setting["train_fraction"])
        kinds = sizes.setdefault(cell, {"speed": set(), "grok": set()})
        kinds[member.spec.kind].add(member.spec.data.n_train)
    assert len(sizes) == 25
    assert all(len(k["speed"]) == 1 and k["speed"] == k["grok"] for k in sizes.values())


def test_shuffled_labels_stand_beside_random_ones_in_every_cell() -> None:
    suite = load_suite("control_labels")
    tasks = {
        (member.setting["labels"], member.spec.data.task)
        for member in suite.members()
        if member.spec.kind == "speed"
    }
    assert tasks == {("random", "random"), ("shuffled", "shuffled")}
    grok = {m.setting["labels"] for m in suite.members() if m.spec.kind == "grok"}
    assert grok == {"random", "shuffled"}


def test_a_full_batch_is_the_whole_training_set() -> None:
    full = [
        m.spec for m in load_suite("batch_size").members() if m.setting.get("batch_size") == "full"
    ]
    assert full
    assert all(run.optimiser.batch_size == run.data.n_train for run in full)


def test_mini_takes_about_as_many_steps_an_epoch_as_the_paper() -> None:
    for run in load_suite("mini").runs():
        if run.kind != "capacity":
            assert run.steps_per_epoch in (12, 13)


def test_last_batch_differs_from_mini_in_the_last_step_alone() -> None:
    mini = {run.data.prime: run for run in load_suite("mini").runs() if run.kind == "grok"}
    for run in load_suite("last_batch").runs():
        other = mini[run.data.prime]
        assert run.steps_per_epoch == other.steps_per_epoch == 13
        left, usual = (each.data.n_train - 12 * each.optimiser.batch_size for each in (run, other))
        assert 6 <= left <= 15
        assert usual > 0.3 * other.optimiser.batch_size
        assert run.optimiser.batch_size < 1.04 * other.optimiser.batch_size


def test_permutations_compose_in_s5() -> None:
    grok = [run for run in load_suite("permutations").runs() if run.kind == "grok"]
    assert {(run.vocabulary, run.data.n_train) for run in grok} == {(122, 7200)}


def test_runs_shared_by_suites_have_one_key() -> None:
    central = {run.key for run in load_suite("central").runs()}
    dropout = {run.key for run in load_suite("dropout").runs()}
    assert len(central & dropout) > 500


def test_the_runs_of_central_share_their_parts() -> None:
    """What makes expanding it quick: as many parts as distinct values, not as runs."""
    members = load_suite("central").members()
    assert len({member.spec.key for member in members}) == 18_756
    assert len({id(member.spec.model) for member in members}) < 400
    assert len({id(member.spec.data) for member in members}) < 40


@pytest.mark.parametrize("name", ["central-mid-widths", "central-narrow-widths", "eval-clock"])
def test_added_widths_repeat_no_run_of_the_suites_they_add_to(name: str) -> None:
    """An analysis takes one run for a width and a seed."""
    suite = load_suite(f"{name}-released")
    members = [*suite.members(), *(m for donor in suite.inherited for m in donor.members)]
    places = [(m.spec.kind, m.prime, m.spec.model.width, m.spec.seed) for m in members]
    trained = [place for place in places if place[0] != "capacity"]
    assert len(trained) == len(set(trained))


@pytest.mark.parametrize("name", ["capacity-protocols", "capacity-patience"])
def test_capacity_by_protocol_has_full_batches_and_more_than_the_networks_can_hold(
    name: str,
) -> None:
    runs = load_suite(f"{name}-released").runs()
    assert all(run.data.n_train % run.optimiser.batch_size == 0 for run in runs)
    for width in {run.model.width for run in runs}:
        largest = max((r for r in runs if r.model.width == width), key=lambda r: r.data.n_train)
        assert largest.k_mem > 3.6 * largest.params
