"""Parts of sentences about answers that the page and the reports share."""

from __future__ import annotations

from collections.abc import Mapping

from groktime.service.analysis.capacity import BitsPerParameter
from groktime.service.answers.question import Thresholds
from groktime.service.words import percent


def thresholds_text(thresholds: Thresholds) -> str:
    """Thresholds in the order the chart uses them."""
    return (
        f"T_mem at {percent(thresholds.t_mem)}, T_gen at {percent(thresholds.t_gen)}, "
        f"ΔE from {percent(thresholds.e_train)} to {percent(thresholds.e_val)}"
    )


def bits_text(c_model: BitsPerParameter) -> str:
    """C = 2.16 bits/parameter (fitted)."""
    return f"C = {c_model.value:.3g} bits/parameter ({bits_source(c_model)})"


def bits_source(c_model: BitsPerParameter) -> str:
    """Where C_model came from, in words."""
    if c_model.source == "matched_suite":
        return f"fitted in suite {c_model.suite}"
    return "fitted" if c_model.source == "fitted" else "the paper's"


def bits_origin(c_model: BitsPerParameter) -> str:
    """Where C_model came from, and why, in a sentence's part."""
    named: Mapping[str, str] = {
        "fitted": f"fitted to capacity runs of {c_model.suite}",
        "matched_suite": f"fitted to capacity runs of {c_model.suite} at the same setting",
        "paper": "the paper's constant, because no capacity run of this setting could be fitted",
    }
    return named[c_model.source]
