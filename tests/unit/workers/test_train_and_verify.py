"""`groktime train` and `groktime verify` as a user types them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from groktime.service.commands.train import shipped_files, train, verify
from groktime.service.errors import InputError

app = typer.Typer()
app.command()(train)
app.command()(verify)


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    if isinstance(result.exception, Exception) and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


SMALL = ["train", "--prime", "11", "--width", "8", "--engine", "torch", "--device", "cpu"]


def test_a_run_prints_its_first_passages() -> None:
    code, text = invoke(*SMALL, "--epochs", "3")
    assert code == 0
    assert "E_train, online clock ≥ 99%" in text
    assert "not by epoch 3 (censored)" in text


def test_a_run_answers_machines_in_json() -> None:
    code, text = invoke(*SMALL, "--epochs", "2", "--kind", "speed", "--n", "30", "--json")
    answer = json.loads(text)
    assert code == 0
    assert answer["epochs"] == 2
    assert answer["engine"] == "torch"
    assert answer["spec"]["data"] == {"task": "random", "prime": 11, "n": 30}
    assert [p["name"] for p in answer["first_passages"]] == [
        "E_train, online clock",
        "E_train, eval clock",
    ]


def test_a_capacity_run_measures_bits_on_as_many_random_labels_as_would_train() -> None:
    _, text = invoke(*SMALL, "--epochs", "1", "--kind", "capacity", "--json")
    answer = json.loads(text)
    assert answer["spec"]["data"]["n"] == 55
    assert answer["spec"]["model"]["dropout"] == 0
    assert isinstance(answer["bits"], float)


def test_an_mlp_needs_no_other_option() -> None:
    _, text = invoke(*SMALL, "--epochs", "1", "--architecture", "mlp", "--json")
    assert json.loads(text)["spec"]["model"]["architecture"] == "mlp"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--prime", "12", "--width", "8"], "12 is not a prime"),
        (["--prime", "11", "--width", "7"], "width = 7 is odd"),
        (["--prime", "11", "--width", "8", "--lr", "-1"], "lr"),
    ],
)
def test_an_impossible_run_is_refused_by_field_and_value(options: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        invoke("train", *options)


def test_a_golden_file_is_found_by_name_and_verified() -> None:
    code, text = invoke("verify", "addition_p19_d12_wd0.npz", "--engine", "torch", "--json")
    answer = json.loads(text)
    assert code == 0
    assert answer["failed"] == 0
    assert len(answer["checks"]) == 5
    assert all(check["passed"] for check in answer["checks"])


def test_a_failing_file_exits_one_and_says_so(tmp_path: Path) -> None:
    (source,) = [path for path in shipped_files() if path.name == "addition_p19_d12_wd0.npz"]
    with np.load(source) as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays["val_loss"][-1] *= 2
    np.savez(tmp_path / "wrong.npz", **arrays)
    code, text = invoke("verify", str(tmp_path / "wrong.npz"), "--engine", "torch")
    assert code == 1
    assert "FAILED" in text
    assert "4 of 5 checks passed" in text


def test_many_checks_that_pass_are_counted_and_one_that_fails_is_shown(tmp_path: Path) -> None:
    (source,) = [path for path in shipped_files() if path.name == "statistics.json"]
    code, text = invoke("verify", str(source))
    assert code == 0
    counted = re.search(r"^([0-9]+) of \1 checks passed$", text, re.MULTILINE)
    assert counted
    assert len(text.splitlines()) < 6
    assert "onsets[0].onset" in invoke("verify", str(source), "--all")[1]
    copy = tmp_path / "statistics.json"
    content = json.loads(source.read_text())
    content["onsets"][0]["expected_onset"] += 1
    copy.write_text(json.dumps(content))
    code, text = invoke("verify", str(copy))
    assert code == 1
    assert f"{int(counted[1]) - 1} checks ok" in text
    assert "onsets[0].onset" in text


def test_a_file_that_does_not_exist_is_answered_with_those_that_do() -> None:
    with pytest.raises(InputError, match="division_p23_d16_rope"):
        invoke("verify", "nothing.npz")


def test_all_golden_files_are_shipped() -> None:
    assert len(shipped_files()) == 10
