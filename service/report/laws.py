"""C_model beside its published values, and the laws of the two speeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from groktime.service.analysis.capacity import SAG, BitsPerParameter
from groktime.service.analysis.laws import LEAST_PRIMES_OF_C, FormFit
from groktime.service.analysis.regression import RELIABLE_CLUSTERS
from groktime.service.answers.capacity import (
    CapacityAnswer,
    WidthCapacity,
    last_batch_dips,
)
from groktime.service.answers.laws import DelayLawAnswer, LawAnswer, LawForms
from groktime.service.answers.verdicts import MORRIS_BITS, PAPER_BITS, bits_origin
from groktime.service.report.content import SettingContent, SuiteContent
from groktime.service.report.document import Block, Paragraph, Table
from groktime.service.words import (
    EN_DASH,
    count,
    estimate,
    form_formula,
    is_shown,
    percent,
    plain,
    probability,
    real,
    setting_text,
    signed,
    whole,
)

CENTRAL_DECAY = 1.0  # of the networks whose crossing is asked about
PAPER_PATIENCE = 100  # epochs without improvement that end a capacity run
CLOSE_AIC = 2.0  # forms closer than this explain the widths equally well


def c_model(content: SuiteContent, part: SettingContent) -> BitsPerParameter | None:
    """C_model as the cells of the setting use it in the suite's own convention."""
    return part.c_model.get(content.main[0])


def c_model_text(bits: BitsPerParameter) -> str:
    """The value with its interval, and how that came about where it is not by resampling."""
    how = " (t)" if bits.interval == "t" else ""
    return real(bits.value, bits.low, bits.high) + how


def c_model_source(bits: BitsPerParameter) -> str:
    """Where the value is from, in a word or two."""
    return f"of {bits.suite}" if bits.source == "matched_suite" else bits.source


def capacity_blocks(content: SuiteContent) -> list[Block]:
    """C_model of every setting with its interval, and what others found."""
    rows = []
    notes: dict[str, list[str]] = {}  # settings by what is to be said of them
    for part in content.settings:
        bits = c_model(content, part)
        name = setting_text(part.setting, "all cells")
        fit = None if isinstance(part.capacity, str) else part.capacity.fit
        rows.append(
            (
                name,
                EN_DASH if bits is None else c_model_text(bits),
                EN_DASH if bits is None else bits_origin(bits),
                EN_DASH
                if fit is None
                else estimate(fit.intercept, fit.intercept_low, fit.intercept_high),
                EN_DASH if fit is None else plain(fit.r_squared, 4),
                EN_DASH if fit is None else str(fit.widths),
            )
        )
        for note in _capacity_notes(part, bits):
            notes.setdefault(note, []).append(name)
    rows.append(("paper, central", plain(PAPER_BITS), "as printed", EN_DASH, EN_DASH, EN_DASH))
    rows.append(
        ("Morris et al. (2025)", plain(MORRIS_BITS), "language models", EN_DASH, EN_DASH, EN_DASH)
    )
    table = Table(
        name=f"{content.name}-capacity",
        caption=f"{content.name}: C_model, bits per parameter: the slope of capacity against P, "
        "with its interval over resampled widths and their plateaus' errors; "
        "with three widths it is least squares' own, a t "
        "interval with one degree of freedom.",
        header=("setting", "C_model", "source", "intercept, bits", "R²", "widths"),
        rows=tuple(rows),
        numeric=frozenset({1, 3, 4, 5}),
    )
    several = len(content.settings) > 1
    said = [f"{'; '.join(names)}: {note}" if several else note for note, names in notes.items()]
    by_decay = protocol_sentences(content)
    if by_decay:
        said += by_decay
    elif any(_has_line(part, c_model(content, part)) for part in content.settings):
        said.append(ABOUT_PAPER_BITS)
    return [table, *(Paragraph(sentence) for sentence in said)]


ABOUT_PAPER_BITS = (
    f"Where C_model differs from the paper's {PAPER_BITS:g}, these runs cannot say why: the suites "
    "that the authors released measure capacity on modular data and take C_model as given, so that "
    "no released run stands behind the printed value."
)


def patience(content: SuiteContent) -> int | None:
    """Epochs without improvement that end a capacity run; None where the suite names none."""
    epochs: int | None = content.record.spec.get("stop", {}).get("patience")
    return epochs


def protocol_sentences(content: SuiteContent) -> list[str]:
    """Where the paper's constant comes from, and what is missing to Morris et al.'s."""
    found = {
        float(decay): bits
        for part in content.settings
        if isinstance(decay := part.setting.get("weight_decay"), int | float)
        and (bits := c_model(content, part)) is not None
        and bits.source == "fitted"
    }
    if len(found) < 2:
        return []
    holds = [
        f"{decay:g}"
        for decay, bits in sorted(found.items())
        if bits.low is not None and bits.high is not None and bits.low <= PAPER_BITS <= bits.high
    ]
    nearest = min(found, key=lambda decay: abs(found[decay].value - PAPER_BITS))
    told_apart = found[nearest].interval != "t"  # of three widths, it holds nearly anything
    said = [
        f"Where {PAPER_BITS:g} comes from: the interval contains it at weight decay "
        f"{' and '.join(holds)}; the nearest value is {c_model_text(found[nearest])} at "
        f"{nearest:g}."
        if holds
        else f"Where {PAPER_BITS:g} comes from: at no weight decay measured here does the interval "
        f"contain it; the nearest value is {c_model_text(found[nearest])} at {nearest:g}."
    ][: int(told_apart)]
    if CENTRAL_DECAY in found:
        said.append(
            f"At weight decay {CENTRAL_DECAY:g}, with which the central networks train, C_model is "
            f"{c_model_text(found[CENTRAL_DECAY])}: a capacity fraction f reckoned with "
            f"{PAPER_BITS:g} is {plain(found[CENTRAL_DECAY].value / PAPER_BITS)} of theirs."
        )
    most = max(found, key=lambda decay: found[decay].value)
    said.append(
        f"The largest, {c_model_text(found[most])} at weight decay {most:g}, is "
        f"{100 * found[most].value / MORRIS_BITS:.0f} % of Morris et al.'s {MORRIS_BITS:g}: "
        f"{_missing(content)}."
        if found[most].value < MORRIS_BITS
        else f"At weight decay {most:g} C_model reaches Morris et al.'s {MORRIS_BITS:g}: "
        f"{c_model_text(found[most])}."
    )
    return said


def _missing(content: SuiteContent) -> str:
    """What was tried on the way to Morris et al.'s value."""
    waited = patience(content)
    if waited is None or waited <= PAPER_PATIENCE:
        return "removing decay alone does not give the rest"
    return f"removing decay and waiting for {whole(waited)} epochs do not give the rest"


def _has_line(part: SettingContent, bits: BitsPerParameter | None) -> bool:
    """Is C_model the line through capacity runs of this suite, its own or inherited?"""
    if bits is None or bits.source == "paper" or isinstance(part.capacity, str):
        return False
    return bool(_in_the_line(part.capacity))


def _capacity_notes(part: SettingContent, bits: BitsPerParameter | None) -> list[str]:
    if isinstance(part.capacity, str):
        return [f"{part.capacity}."]
    return capacity_limits(part) if _has_line(part, bits) else []


def capacity_limits(part: SettingContent) -> list[str]:
    """What C_model rests on, what its interval does not carry, and what the paper's rule gives."""
    if isinstance(part.capacity, str):
        return []
    widths = _in_the_line(part.capacity)
    runs = sum(len(w.points) for w in widths)
    found = [
        f"C_model rests on {runs} runs at {count(len(widths), 'width')}; its interval is over "
        "widths, dataset sizes and the seeds there are."
    ]
    dips = {point.n: point for width in widths for point in last_batch_dips(width.points)}
    for n, point in sorted(dips.items()):
        found[0] += (
            f" The dip at n = {whole(n)} is the last batch's: it holds {point.last_batch} of "
            f"{point.batch_size} examples, a full step on few of them."
        )
    worse = falls(part)
    if worse:
        found[0] += (
            f" At {len(worse)} of {len(widths)} widths a larger set was memorised worse than a "
            f"smaller one, by up to {100 * max(worse):.0f} %: memorisation suffers past the "
            "plateau, or patience ended training early, so that C_model may be too low."
        )
    found += _never_saturated(part.capacity)
    theirs = part.c_model.get("paper")
    if theirs is not None and theirs.source != "paper":
        found.append(
            "By the paper's rule, the maximum over dataset sizes, C_model is "
            f"{c_model_text(theirs)}."
        )
    return found


def _in_the_line(answer: CapacityAnswer) -> list[WidthCapacity]:
    return [width for width in answer.widths if width.fitted]


def _never_saturated(answer: CapacityAnswer) -> Iterator[str]:
    """Widths of which only a lower bound is known, and whether the line has them."""
    flagged = [width for width in answer.widths if "not_saturated" in width.flags]
    if out := [str(width.width) for width in flagged if not width.fitted]:
        left = "is" if len(out) == 1 else "are"
        yield f"d = {', '.join(out)} never saturated and {left} left out of the line."
    if kept := [str(width.width) for width in flagged if width.fitted]:
        yield f"d = {', '.join(kept)} never saturated: the line takes a lower bound there."


def falls(part: SettingContent) -> list[float]:
    """Of fitted widths whose curve falls by more than a sag: by what share, largest set or not."""
    if isinstance(part.capacity, str):
        return []
    found = (_largest_fall(_without_dips(w)) for w in _in_the_line(part.capacity))
    return [fall for fall in found if fall > SAG]


def _without_dips(width: WidthCapacity) -> list[float]:
    """Bits by growing sets, a mean over seeds, without dips that the last batch explains."""
    dips = {point.n for point in last_batch_dips(width.points)}
    by_size: dict[int, list[float]] = {}
    for point in width.points:
        if point.n not in dips:
            by_size.setdefault(point.n, []).append(point.bits)
    return [sum(bits) / len(bits) for _, bits in sorted(by_size.items())]


def _largest_fall(bits: list[float]) -> float:
    """How far a curve over growing sets falls below its maximum so far, as a share of it."""
    highest, fall = 0.0, 0.0
    for value in bits:
        highest = max(highest, value)
        fall = max(fall, 1 - value / highest if highest > 0 else 0.0)
    return fall


def law_blocks(content: SuiteContent) -> list[Block]:
    """T_mem's law against its rivals, its collapse, and T_gen's law."""
    rows = []
    sentences = []
    for part in content.settings:
        name = setting_text(part.setting, "all cells")
        if isinstance(part.law, str):
            sentences.append(f"{name}: no law ({part.law}).")
            continue
        for fit in (*part.law.rivals, *part.law.per_prime):
            rows.append(
                (
                    name + _borrowed(part.law.c_model),
                    "pooled" if fit.prime is None else f"p = {fit.prime}",
                    form_formula(fit.form),
                    real(fit.a, fit.a_low, fit.a_high),
                    plain(fit.b),
                    plain(fit.c),
                    plain(fit.r_squared),
                    plain(fit.aicc, 4),
                    str(fit.n),
                )
            )
        sentences.append(
            f"{name}: {collapse_sentence(part.law)} {generalisation_sentence(part.law)}"
        )
    table = Table(
        name=f"{content.name}-law",
        caption=f"{content.name}: T_mem against the capacity fraction f = K_mem / (C_model·P), "
        f"{_window(content)}; smallest AICc first. Pooled intervals of a have errors clustered by "
        "prime from three primes on; the stretched form's a and c go together and have none.",
        header=("setting", "primes", "form", "a", "b", "c", "R²", "AICc", "widths"),
        rows=tuple(rows),
        numeric=frozenset(range(3, 9)),
    )
    return [table, *(Paragraph(sentence) for sentence in sentences), *forms_blocks(content)]


def _borrowed(bits: BitsPerParameter) -> str:
    """Said of a row whose f rests on a C_model that this suite did not measure."""
    if bits.source == "fitted":
        return ""
    whose = "the paper's" if bits.source == "paper" else f"of {bits.suite}"
    return f" (C {whose}: {bits.value:.3g})"


def forms_blocks(content: SuiteContent) -> list[Block]:
    """The critical law by clock and threshold: whose end is f_c, and what it does to P_cross."""
    forms = [row for row in content.law_forms if row.alone]
    if not forms:
        return []
    rows = []
    for row in forms:
        alone, beside = _critical(row.alone), _critical(row.with_last_batch)
        rows.append(
            (
                row.clock,
                percent(row.t_mem),
                str(row.alone[0].n),
                row.alone[0].form,
                EN_DASH if alone is None else signed(alone.against_exponential, 2),
                "none" if alone is None or alone.critical is None else plain(alone.critical),
                row.with_last_batch[0].form if row.with_last_batch else EN_DASH,
                EN_DASH if beside is None else signed(beside.against_exponential, 2),
                EN_DASH
                if beside is None
                else ("none" if beside.critical is None else plain(beside.critical)),
                EN_DASH if beside is None else signed(beside.last_batch, 2),
                EN_DASH if row.shift is None else f"{signed(row.shift, 2)} ({row.crossings})",
            )
        )
    table = Table(
        name=f"{content.name}-forms",
        caption=f"{content.name}: T_mem over all f by clock and threshold, alone and times a power "
        "of the last batch. Critical: AICc of b·(1 − f/f_c)^(−γ) less that of the exponential; "
        "f_c: where it ends, none if out of sight. P_cross: median shift of the crossing from the "
        "suite's own rule, dex, with the cells that cross by both.",
        header=(
            *("clock", "T_mem at", "widths", "best form", "critical", "f_c"),
            *("best with last batch", "critical", "f_c", "power of last batch", "P_cross"),
        ),
        rows=tuple(rows),
        numeric=frozenset({1, 2, 4, 5, 7, 8, 9, 10}),
    )
    return [table, *(Paragraph(sentence) for sentence in forms_sentences(forms))]


@dataclass(frozen=True)
class _Critical:
    against_exponential: float
    critical: float | None
    last_batch: float | None


def _critical(fits: Sequence[FormFit]) -> _Critical | None:
    known = {fit.form: fit for fit in fits}
    critical, plain_form = known.get("critical"), known.get("exponential")
    if critical is None or plain_form is None or critical.aicc is None or plain_form.aicc is None:
        return None
    return _Critical(critical.aicc - plain_form.aicc, critical.critical, critical.last_batch)


def forms_sentences(forms: Sequence[LawForms]) -> Iterator[str]:
    """Whose end f_c is: memorising's, or the plateau's that dropout leaves on the online clock."""
    wins: dict[str, list[str]] = {"online": [], "eval": []}
    for row in forms:
        found = _critical(row.with_last_batch) or _critical(row.alone)
        if found and found.critical is not None and found.against_exponential < -CLOSE_AIC:
            wins[row.clock].append(percent(row.t_mem))
    clocks = {row.clock for row in forms}
    if clocks != {"online", "eval"}:
        return
    if wins["online"] and not wins["eval"]:
        yield (
            "T_mem seems to end at a finite size on the online clock (T_mem at "
            f"{', '.join(wins['online'])}) and at none on the eval clock: f_c points to the "
            "accuracy that dropout leaves while it is on rather than to memorising."
        )
    elif wins["eval"]:
        yield (
            f"On the eval clock, too, T_mem seems to end at a finite size (T_mem at "
            f"{', '.join(wins['eval'])}): f_c is not the plateau of dropout alone."
        )
    else:
        yield "On neither clock is T_mem shown to end at a finite size."
    lowest = min((r for r in forms if r.clock == "online"), key=lambda r: r.t_mem)
    if lowest.shift is not None and lowest.shift != 0:
        yield (
            "What it decides of P_cross: with T_mem at "
            f"{percent(lowest.t_mem)} of the online clock it lies {signed(lowest.shift)} dex from "
            f"the suite's own, in {count(lowest.crossings, 'cell')} that cross by both."
        )


LAW_WORDS = {
    "constant": "a constant",
    "size": "log P",
    "crossing": "log(P / P_cross)",
    "norm": "weight norm: ln(V_mem / V*) / (2κηλ)",
    "norm_per_parameter": "weight norm, V per parameter",
}


def delay_law_blocks(content: SuiteContent) -> list[Block]:
    """The norm law of the delay beside the crossing's, on primes left out."""
    found = content.delay_law
    if isinstance(found, str):
        return [Paragraph(f"No law of the delay ({found}).")]
    laws = found.laws
    own = {fit.law: fit for fit in laws.calibration}
    rows = []
    for held in laws.held_out:
        fit = own.get(held.law)
        rows.append(
            (
                LAW_WORDS[held.law],
                whole(round(held.rmse)),
                whole(round(held.rmse_by_prime)),
                whole(round(held.median_error)),
                f"{100 * held.told_apart:.0f} %",
                EN_DASH if fit is None or fit.kappa is None else plain(fit.kappa),
                EN_DASH if fit is None or fit.v_star is None else plain(fit.v_star),
            )
        )
    table = Table(
        name=f"{content.name}-delay-law",
        caption=f"{content.name}: the delay in optimiser steps by laws with one or two constants, "
        "each calibrated on all primes but one and tried on that one. RMSE: over runs, and with "
        "primes weighing alike; median: of absolute errors; told apart: rightly said to be "
        "delayed or not. V is the squared norm of the weights, V_mem at E_train; κ and V* are of "
        "all primes, empty where delays do not grow with the norm.",
        header=("law", "RMSE", "by prime", "median", "told apart", "κ", "V*"),
        rows=tuple(rows),
        numeric=frozenset(range(1, 7)),
    )
    return [table, Paragraph(delay_law_sentence(found))]


def delay_law_sentence(found: DelayLawAnswer) -> str:
    """Which law predicts the delays of primes it has not seen."""
    errors = {held.law: held for held in found.laws.held_out}
    norm = min(
        (errors[law] for law in ("norm", "norm_per_parameter") if law in errors),
        key=lambda held: held.rmse,
        default=None,
    )
    crossing, constant = errors.get("crossing"), errors.get("constant")
    if norm is None or crossing is None or constant is None:
        return "Not every law of the delay could be calibrated."
    better = "the crossing's" if crossing.rmse < norm.rmse else "the norm's"
    beaten = [
        name
        for name, held in (("the norm's law", norm), ("the crossing's", crossing))
        if held.rmse >= constant.rmse
    ]
    none = f" {' and '.join(beaten)} predicts no better than a constant." if beaten else ""
    return (
        f"Delays of {count(len(found.laws.primes), 'prime')} left out in turn "
        f"({found.laws.delayed} of {count(found.laws.runs, 'run')} delayed): the error of the norm "
        f"law in its better form is {norm.rmse:.0f} steps, of the crossing's {crossing.rmse:.0f}, "
        f"of a constant {constant.rmse:.0f}; {better} is the smaller."
        + (none[:1] + none[1:2].upper() + none[2:] if none else "")
    )


def _window(content: SuiteContent) -> str:
    for part in content.settings:
        if not isinstance(part.law, str):
            low, high = part.law.window
            return f"fitted on f from {low:g} to {high:g}"
    return "not fitted"


def collapse_sentence(law: LawAnswer) -> str:
    """Whether one curve of f serves all primes."""
    test = law.collapse
    if not test.testable or test.slope is None or test.p is None:
        return f"Whether all primes fall on one curve is not testable: {test.reason}."
    told = "still depends" if is_shown(test.p) else "is not shown to depend"
    weak = (
        f" ({test.primes} primes: the errors are unreliable below ten)" if test.unreliable else ""
    )
    return (
        f"At fixed f, T_mem {told} on P: as P to the power {signed(test.slope)} "
        f"(standard error {plain(test.se)}, {probability(test.p)}){weak}."
    )


def generalisation_sentence(law: LawAnswer) -> str:
    """T_gen ≈ A·p^c·P^(−β) in words."""
    fit = law.generalisation
    if fit is None:
        return "T_gen has too few reached widths for a law."
    beta = real(fit.beta, fit.beta_low, fit.beta_high)
    quality = f"(R² {plain(fit.r_squared)}, {count(fit.n, 'width')})"
    if fit.primes == 1:
        return f"T_gen ≈ A·P^(−β) with β {beta} {quality}."
    weak = ""
    if fit.primes < LEAST_PRIMES_OF_C:
        weak = f" ({fit.primes} primes: c's interval takes five)"
    elif fit.primes < RELIABLE_CLUSTERS:
        weak = f" ({fit.primes} primes: c's interval is rough below ten)"
    c = real(fit.c, fit.c_low, fit.c_high)
    return f"T_gen ≈ A·p^c·P^(−β) with β {beta} and c {c} {quality}{weak}."


def form_sentence(law: LawAnswer) -> str:
    """Which of the forms the widths prefer, if they can tell."""
    known = [fit for fit in law.rivals if fit.aicc is not None]
    if len(known) < 2 or known[0].aicc is None:
        return "no other form could be fitted"
    best = known[0]
    limit = known[0].aicc + CLOSE_AIC
    close = [f.form for f in known[1:] if f.aicc is not None and f.aicc < limit]
    if close:
        names = " and ".join([best.form, *close])
        return f"the forms {names} cannot be told apart (AICc within {CLOSE_AIC:g})"
    return f"of the {len(known)} forms fitted the {best.form} has the smallest AICc"
