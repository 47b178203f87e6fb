"""Numbers as people read them: 1.2 M, 121k, 95 % CI 110k–140k."""

from __future__ import annotations

import math

EN_DASH = "–"


def people(value: float | None) -> str:
    """Three significant digits with k and M: 20055 → 20.1k, 2157312 → 2.16 M, 484 → 484."""
    if value is None or math.isnan(value):
        return EN_DASH
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    rounded = float(f"{size:.3g}")
    for factor, unit in ((1e9, " G"), (1e6, " M"), (1e3, "k")):
        if rounded >= factor:
            return _signed(value, _significant(size / factor) + unit)
    return _signed(value, _significant(size))


def _significant(size: float) -> str:
    if size == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(float(f"{size:.3g}"))))
    text = f"{size:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _signed(value: float, text: str) -> str:
    return f"−{text}" if value < 0 and text != "0" else text


def interval(low: float | None, high: float | None) -> str:
    """110k–140k, or a one-sided `> 110k` where the interval is open (0, infinity or absent)."""
    open_low = low is None or math.isnan(low) or low <= 0 or math.isinf(low)
    open_high = high is None or math.isnan(high) or math.isinf(high)
    if open_low and open_high:
        return "unbounded"
    if open_low:
        return f"< {people(high)}"
    if open_high:
        return f"> {people(low)}"
    return f"{people(low)}{EN_DASH}{people(high)}"


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


def scientific(value: float) -> str:
    """2·10⁻⁶, for ticks far below one."""
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{float(mantissa):g}·10{str(int(exponent)).translate(_SUPERSCRIPT)}"


_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def count(number: int, thing: str) -> str:
    """1 run, 14,300 runs."""
    return f"{number:,} {thing if number == 1 else thing + 's'}"
