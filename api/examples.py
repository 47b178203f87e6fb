"""Examples in the OpenAPI document: what an answer looks like."""

from __future__ import annotations

from typing import Any

CROSSING: dict[str, Any] = {
    "suite": "demo",
    "revision": 30,
    "prime": 47,
    "setting": {},
    "method": "robust",
    "clock": "online",
    "provenance": {
        "analysis_version": 1,
        "suite_hash": "8f0c…",
        "frozen": False,
        "thresholds": {"t_mem": 0.99, "t_gen": 0.99, "e_train": 0.99, "e_val": 0.98},
        "max_width": None,
        "labels": "random",
        "runs": {"speed": 15, "grok": 15},
        "inherited": {"speed": 0, "grok": 0},
        "engines": ["native"],
        "devices": ["cpu"],
    },
    "units": "epochs",
    "status": "crossed",
    "p_cross": {
        "estimate": 21450.3,
        "low": 19800.0,
        "high": 23900.0,
        "level": 0.95,
        "few_seeds": True,
        "resamples": 10000,
        "probability": 1.0,
    },
    "epochs": 412.7,
    "roots": [
        {
            "params": 21450.3,
            "low": 21450.3,
            "high": 21450.3,
            "epochs": 412.7,
            "direction": "mem_becomes_faster",
            "bracketed": False,
        }
    ],
    "at_edge": False,
    "unresolved_widths": [16],
    "p_onset": {
        "estimate": 22980.1,
        "low": 20808.0,
        "high": 25392.0,
        "level": None,
        "rule": "P at which half of the seeds are delayed",
        "status": "separated",
        "at_floor": False,
        "at_cap": False,
    },
    "residual": 0.03,
    "k_mem": 6071.2,
    "n_train": 1081,
    "p_mem": 2810.7,
    "c_model": {
        "value": 2.16,
        "low": None,
        "high": None,
        "level": None,
        "source": "paper",
        "suite": None,
        "note": "no fit exists",
    },
    "seeds": {"speed": 3, "grok": 3},
    "censored": {"speed": 2, "grok": 1},
    "diverged": {"speed": 0, "grok": 0},
    "missing": {"speed": 0, "grok": 0},
    "curves": {
        "t_mem": [
            {
                "width": 32,
                "params": 36000,
                "value": 190.0,
                "seeds": 3,
                "reached": 3,
                "censored": 0,
                "diverged": 0,
                "missing": 0,
            }
        ],
        "t_gen": [],
    },
}


def twins(example: dict[str, Any] | None = None) -> dict[int | str, dict[str, Any]]:
    """The 200 response of a route with a CSV twin, and its 304."""
    json: dict[str, Any] = {} if example is None else {"example": example}
    csv = {"schema": {"type": "string"}}
    return {
        200: {"content": {"application/json": json, "text/csv": csv}},
        304: {"description": "The client's copy (If-None-Match) is the current one."},
    }
