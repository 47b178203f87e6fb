"""The deployment's files, parsed once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from fixtures.compose_file import load

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def compose() -> dict[str, Any]:
    """docker-compose.yml with its variables filled in."""
    return load(ROOT / "docker-compose.yml", {"SECRETS_DIR": "/secrets"})


@pytest.fixture(scope="session")
def kubernetes() -> list[dict[str, Any]]:
    """Every Kubernetes resource of the base and of the job, as written."""
    files = [
        *(ROOT / "deploy/kuberay/base").glob("*.yaml"),
        ROOT / "deploy/kuberay/job/rayjob.yaml",
    ]
    return [
        document
        for path in sorted(files)
        if path.name != "kustomization.yaml"
        for document in yaml.safe_load_all(path.read_text())
    ]
