"""The deployment's files, parsed once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "deploy"))  # its programs are files, not a package


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def compose() -> dict[str, Any]:
    """docker-compose.yml with its variables filled in."""
    from compose_file import load

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
