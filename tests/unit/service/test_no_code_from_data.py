"""Nothing that others may write is ever run: no pickle, no unsafe YAML, no eval of data.

Ray moves arguments between its own processes by pickle, behind its token. What lies in files or
comes over HTTP is read by formats that hold data only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from groktime.service.errors import CheckpointError
from groktime.workers.checkpoints import VERSION, CheckpointStore

ROOT = Path(__file__).parents[3]
PACKAGES = ("service", "workers", "db", "api", "dashboard")
FORBIDDEN_MODULES = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
FORBIDDEN_CALLS = {
    "eval",
    "exec",
    "torch.load",
    "np.fromfile",
    "pd.read_pickle",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
}


def calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_reads_code_from_data(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
        )
    }
    assert not imported & FORBIDDEN_MODULES
    for name, call in calls(tree):
        assert name not in FORBIDDEN_CALLS
        if name == "np.load":
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
            assert given.get("allow_pickle") == "False"


def test_a_checkpoint_with_a_pickled_object_is_refused_and_nothing_in_it_runs(
    tmp_path: Path,
) -> None:
    import hashlib
    import io

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[Path]]:
            return Path.touch, (tmp_path / "sprung",)

    archive = io.BytesIO()
    np.savez(archive, header=np.array([Trap()], dtype=object))
    payload = archive.getvalue()
    key = "ab" * 32
    path = tmp_path / key[:2] / key / "00000005.checkpoint"
    path.parent.mkdir(parents=True)
    digest = hashlib.sha256(payload).hexdigest().encode()
    path.write_bytes(VERSION + digest + b"\n" + payload)
    store = CheckpointStore(tmp_path)
    with pytest.raises(CheckpointError):
        store.load(key, 5)
    assert store.epochs(key, "engine") == []
    assert not (tmp_path / "sprung").exists()
