"""What cells teach each other: where to look, never what is reported."""

from __future__ import annotations

import math

import pytest

from groktime.service.sweep.priors import Finding, Learnt, Noise, Prior, prior_of

GENERAL = Prior()
NONE = (("positions", "none"),)
ROPE = (("positions", "rope"),)


def cell(
    k_mem: float,
    multiple: float | None,
    setting: tuple[tuple[str, str], ...] = NONE,
    spread: float = 0.03,
    findings: tuple[Finding, ...] = (),
) -> Learnt:
    """A cell whose crossing and onset lie at a multiple of what the general prior says."""
    crossing = onset = None
    if multiple is not None:
        at = math.log(k_mem) + math.log(multiple)
        crossing, onset = (at + GENERAL.crossing, spread), (at + GENERAL.onset, spread)
    return Learnt(math.log(k_mem), setting, crossing, onset, findings)


def test_without_others_a_cell_has_the_general_prior() -> None:
    alone = prior_of(cell(10_000, None), [])
    assert (alone.crossing, alone.onset) == (GENERAL.crossing, GENERAL.onset)
    assert prior_of(cell(10_000, None), [cell(20_000, None)]).crossing == GENERAL.crossing


def test_cells_that_lie_elsewhere_move_the_prior_and_narrow_it() -> None:
    others = [cell(k, 1.5) for k in (8_000, 12_000, 20_000)]
    learnt = prior_of(cell(10_000, None), others)
    for got, general in ((learnt.crossing, GENERAL.crossing), (learnt.onset, GENERAL.onset)):
        assert math.log(1.2) < got - general < math.log(1.5)
    assert learnt.crossing_spread < 0.2 < prior_of(cell(10_000, None), []).crossing_spread
    assert learnt.spread < GENERAL.spread


def test_more_cells_and_surer_ones_count_more() -> None:
    target = cell(10_000, None)
    few = prior_of(target, [cell(9_000, 1.5)]).crossing
    many = prior_of(target, [cell(9_000, 1.5), cell(11_000, 1.5)]).crossing
    vague = prior_of(target, [cell(9_000, 1.5, spread=0.5)]).crossing
    assert vague < few < many


def test_cells_of_the_same_setting_count_more_than_others() -> None:
    target = cell(10_000, None, ROPE)
    same = prior_of(target, [cell(9_000, 1.5, ROPE)])
    other = prior_of(target, [cell(9_000, 1.5, NONE)])
    assert GENERAL.crossing < other.crossing < same.crossing
    assert same.crossing_spread < other.crossing_spread


def test_a_multiple_that_grows_with_the_size_is_carried_on() -> None:
    others = [cell(k, (k / 10_000) ** 0.3) for k in (5_000, 7_000, 10_000, 14_000, 20_000)]
    assert (
        prior_of(cell(40_000, None), others).crossing
        > prior_of(cell(10_000, None), others).crossing + 0.05
    )


def test_noise_is_learnt_from_other_cells_seeds() -> None:
    def seeds(spread: float) -> tuple[Finding, ...]:
        return tuple(
            Finding("speed", 32, seed, 300 * math.exp(sign * spread), 900)
            for seed, sign in enumerate((-1, 1) * 6)
        )

    quiet = prior_of(cell(10_000, None), [cell(9_000, 1.0, findings=seeds(0.01))])
    loud = prior_of(cell(10_000, None), [cell(9_000, 1.0, findings=seeds(0.25))])
    assert quiet.noise.mem < Noise().mem < loud.noise.mem
    assert quiet.noise.gen == pytest.approx(Noise().gen)
