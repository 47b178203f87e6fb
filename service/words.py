"""One vocabulary for commands, reports, charts and the page.

Significance levels, the names of statuses, axes and forms, and numbers as people read them. The
page formats the few numbers that reach it raw by the same rules (`static/numbers.js`); one table
of examples tests both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

ALPHA = 0.05  # a p-value below it is called shown
HINT = 0.01  # between this and ALPHA it is called a hint
LARGE_F = 1e12  # an F of cells that lie on a line
Evidence = Literal["shown", "hint", "not shown", "not testable"]

EN_DASH = "–"

JOINERS = "\u200c\u200d"  # some scripts need them

OPERATIONS = {"+": "addition", "-": "subtraction", "*": "multiplication", "/": "division"}
AXES = {
    "lr": "learning rate",
    "weight_decay": "weight decay",
    "init_scale": "initialisation scale",
    "train_fraction": "training fraction",
    "batch_size": "batch size",
    "last_batch": "last batch, share of a full one",
    "k_mem": "dataset complexity K_mem",
}
# A crossing's status in a few words, for tables, and as a sentence.
CROSSING = {
    "crossed": "crossed",
    "bracketed": "between two widths",
    "closest_approach": "closest approach",
    "mem_always_slower": "memorisation slower wherever the order is known",
    "mem_always_faster": "memorisation faster wherever the order is known",
    "unresolved": "order known at fewer than two widths",
    "insufficient_data": "too few widths",
}
CROSSING_SENTENCES = {
    "crossed": "The two speed curves cross.",
    "bracketed": "The curves cross between two measured widths; the crossing is only bracketed.",
    "mem_always_slower": "Memorisation is slower at every measured width: no crossing in range.",
    "mem_always_faster": "Memorisation is faster at every measured width: no crossing in range.",
    "unresolved": "The faster one is known at fewer than two widths: a crossing may be anywhere.",
    "insufficient_data": "Too few widths have finished runs of both kinds to look for a crossing.",
    "closest_approach": "The point where the seed-averaged curves come closest (paper's rule).",
}


def crossing_sentence(status: str, unresolved_widths: Sequence[int] = ()) -> str:
    """What is known of the crossing, widths at which the order is not known left open."""
    if not unresolved_widths or status not in ("mem_always_slower", "mem_always_faster"):
        return CROSSING_SENTENCES[status]
    side = status.removeprefix("mem_always_")
    widths = ", ".join(map(str, unresolved_widths))
    return (
        f"Memorisation is {side} wherever the order is known; at d = {widths} it is not, and the "
        "crossing may be there."
    )


# What a crossing asks to be trained next, by the kind of its advice.
ADVICE = {
    "speed": "speed runs",
    "grok": "grok runs",
    "both": "runs of both kinds",
    "longer": "for more epochs",
    "seeds": "more seeds",
}


def advice_text(kind: str, width: int, why: str) -> str:
    """`speed runs at d = 62: T_mem changes 3.4-fold …`, after the word train."""
    return f"{ADVICE[kind]} at d = {width}: {why}"


ONSET = {
    "exact": "at a width",
    "fitted": "fitted",
    "separated": "between two widths",
    "reentrant": "delays come and go",
    "at_floor": "delayed at the narrowest width that fits its training set",
    "above_range": "not delayed at the widest width trained",
    "insufficient_data": "too few widths",
}
ONSET_SENTENCES = {
    "exact": "first P above the last zero delay",
    "fitted": "half of the seeds delayed (penalised logit)",
    "separated": "between the last P without and the first with delay",
    "reentrant": "delays come and go with P: no single onset",
    "at_floor": "already delayed at the smallest P",
    "above_range": "no delay at any measured P",
    "insufficient_data": "too few widths with a delay",
}
# Forms of the law of T_mem: formula and name.
FORMS = {
    "exponential": ("b·exp(a·f)", "exponential"),
    "power": ("b·f^a", "power law"),
    "stretched": ("b·exp(a·f^c)", "stretched exponential"),
    "critical": ("b·(1 − f/c)^−a", "critical law"),
}


def lost_text(lost: Mapping[str, int]) -> str:
    """Why cells are not pooled: `2 × crossing: memorisation faster …; 1 × onset: …`."""
    words = {"crossing": CROSSING, "onset": ONSET}
    told = []
    for reason, cells in lost.items():
        what, _, status = reason.partition(": ")
        known = words.get(what, {}).get(status)
        told.append(
            f"{cells} × {reason.replace('_', ' ') if known is None else f'{what}: {known}'}"
        )
    return "; ".join(told)


REGIMES = {
    "under_capacity": "under capacity",
    "memorised_only": "memorised only",
    "immediate": "generalises at once",
    "grokking": "grokking",
    "mixed": "mixed",
}


def evidence(p: float | None, floor: float | None = None) -> Evidence:
    """What a p-value lets anybody say; `floor` is the smallest that the test can give.

    A large p shows neither an effect nor its absence, so no text says "no effect" of it: the
    effect is "not shown". Absence takes an equivalence test.
    """
    if p is None or math.isnan(p) or (floor is not None and floor >= ALPHA):
        return "not testable"
    if p >= ALPHA:
        return "not shown"
    return "hint" if p >= HINT else "shown"


def is_shown(p: float | None, floor: float | None = None) -> bool:
    """Shown, be it as a hint."""
    return evidence(p, floor) in ("shown", "hint")


def axis_name(axis: str) -> str:
    """weight_decay → weight decay, lr → learning rate."""
    return AXES.get(axis, axis.replace("_", " "))


def setting_text(setting: Mapping[str, object], otherwise: str = "") -> str:
    """weight decay 0.1 · division; `otherwise` for a suite that sweeps nothing."""
    parts = []
    for axis, value in sorted(setting.items()):
        if axis == "operation" and isinstance(value, str):
            parts.append(OPERATIONS.get(value, value))
        elif isinstance(value, float):
            parts.append(f"{axis_name(axis)} {value:g}")
        else:
            parts.append(f"{axis_name(axis)} {value}")
    return " · ".join(parts) or otherwise


def convention_text(method: str, clock: str) -> str:
    return f"{method} method, {clock} clock"


def form_formula(form: str) -> str:
    """b·exp(a·f); a form this vocabulary does not know keeps its name."""
    return FORMS.get(form, (form, form))[0]


def form_name(form: str) -> str:
    return FORMS.get(form, (form, form.replace("_", " ")))[1]


def sentence(text: str) -> str:
    """With a capital at its beginning and one full stop at its end."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def human(value: float | None) -> str:
    """Three significant digits with k and M: 20055 → 20.1k, 2157312 → 2.16 M, 484 → 484."""
    if value is None or math.isnan(value):
        return EN_DASH
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    rounded = float(f"{size:.3g}")
    for factor, unit in ((1e9, " G"), (1e6, " M"), (1e3, "k")):
        if rounded >= factor:
            return _with_minus(value, _significant(size / factor) + unit)
    return _with_minus(value, _significant(size))


def _significant(size: float) -> str:
    if size == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(float(f"{size:.3g}"))))
    text = f"{size:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _with_minus(value: float, text: str) -> str:
    return f"−{text}" if value < 0 and text != "0" else text


def interval(low: float | None, high: float | None) -> str:
    """110k–140k, or a one-sided `> 110k` where the interval is open (0, infinity or absent)."""
    open_low = low is None or math.isnan(low) or low <= 0 or math.isinf(low)
    open_high = high is None or math.isnan(high) or math.isinf(high)
    if open_low and open_high:
        return "unbounded"
    if open_low:
        return f"< {human(high)}"
    if open_high:
        return f"> {human(low)}"
    return f"{human(low)}{EN_DASH}{human(high)}"


def percent(share: float) -> str:
    """0.95 → 95 %, 0.995 → 99.5 %."""
    return f"{round(100 * share, 2):g} %"


def dex(value: float | None) -> str:
    """A difference of log10 with its sign: +0.031 dex."""
    if value is None or math.isnan(value):
        return EN_DASH
    return f"{'+' if value >= 0 else '−'}{abs(value):.3f} dex"


def p_value(value: float | None) -> str:
    """0.0312, 3·10⁻⁵, or < 10⁻¹² where digits stop meaning anything."""
    if value is None or math.isnan(value):
        return EN_DASH
    if value >= 0.001:
        return f"{value:.3g}"
    if value < 1e-12:
        return "< 10⁻¹²"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}·10{str(int(exponent)).translate(_SUPERSCRIPT)}"


def probability(value: float | None) -> str:
    """p = 0.0021, or p < 10⁻¹²."""
    text = p_value(value)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def scientific(value: float) -> str:
    """2·10⁻⁶, for ticks far below one."""
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{float(mantissa):g}·10{str(int(exponent)).translate(_SUPERSCRIPT)}"


_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def count(number: int, thing: str) -> str:
    """1 run, 14,300 runs."""
    return f"{number:,} {thing if number == 1 else thing + 's'}"


def size(content: float) -> str:
    """Bytes as `12 kB`, `387 MB` or `1.5 TB`, by thousands."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if content < 999.5:
            return f"{content:.{1 if content < 9.95 and unit != 'bytes' else 0}f} {unit}"
        content /= 1000
    return f"{content:.1f} TB"


def duration(seconds: float | None) -> str:
    """`45 s`, `12 min`, `3 h 20 min` or `2.1 days`."""
    if seconds is None or not math.isfinite(seconds):
        return EN_DASH
    if seconds < 89.5:
        return f"{math.floor(seconds + 0.5)} s"
    minutes = math.floor(seconds / 60 + 0.5)
    if minutes < 90:
        return f"{minutes} min"
    if minutes < 48 * 60:
        hours, rest = divmod(minutes, 60)
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{math.floor(minutes / 144 + 0.5) / 10:g} days"


def whole(value: float | None) -> str:
    """A count of parameters or bits: 121,345; a dash where there is none."""
    return EN_DASH if value is None else f"{round(value):,}"


def span(numbers: Sequence[int]) -> str:
    """`3 to 5` of sorted numbers, or the only one there is."""
    first, last = whole(numbers[0]), whole(numbers[-1])
    return first if first == last else f"{first} to {last}"


def signed(value: float | None, digits: int = 3) -> str:
    """+0.031 or −0.160, the sign always there."""
    if value is None:
        return EN_DASH
    return f"{value:+.{digits}f}".replace("-", "−")


def plain(value: float | None, digits: int = 3) -> str:
    """Significant digits with a proper minus."""
    return EN_DASH if value is None else f"{value:.{digits}g}".replace("-", "−")


def ends(low: float | None, high: float | None) -> str:
    """`[12,345, 23,456]`; an open end is named so."""
    if low is None and high is None:
        return ""
    return f"[{'open' if low is None else whole(low)}, {'open' if high is None else whole(high)}]"


def estimate(value: float | None, low: float | None, high: float | None) -> str:
    """A whole number with its interval or bracket."""
    return f"{whole(value)} {ends(low, high)}".strip()


def real(value: float | None, low: float | None, high: float | None, digits: int = 3) -> str:
    """A real number with its interval."""
    if value is None or low is None or high is None:
        return plain(value, digits)
    return f"{plain(value, digits)} [{plain(low, digits)}, {plain(high, digits)}]"


def offset(value: float | None, low: float | None, high: float | None) -> str:
    """A difference of log10 with its interval, signs always there."""
    if value is None or low is None or high is None:
        return signed(value)
    return f"{signed(value)} [{signed(low)}, {signed(high)}]"


def refuse_unprintable(text: str) -> str:
    """The text, unless a terminal or a page would act on part of it instead of showing it."""
    for character in text:
        if not character.isprintable() and character not in "\n\t" + JOINERS:
            raise ValueError(
                f"a text with the character U+{ord(character):04X}, which cannot be printed"
            )
    return text
