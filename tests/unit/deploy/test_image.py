"""The image: linted, pinned, built from what the build may see, and run by nobody special."""

from __future__ import annotations

import fnmatch
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

SCRIPTS = (
    "deploy/entrypoint",
    "deploy/make-secrets",
    "deploy/slurm/sweep.sbatch",
    "scripts/containers",
    "scripts/setup",
    "scripts/topology",
    "tests/containers/postgres-entrypoint",
)


def tool(name: str) -> str:
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} has no wheel for this platform")
    return found


@pytest.fixture(scope="module")
def dockerfile(root: Path) -> str:
    return (root / "deploy/Dockerfile").read_text()


@pytest.fixture(scope="module")
def constraints(root: Path) -> dict[str, Version]:
    lines = (root / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if not line.startswith("#"))
    return {name: Version(version) for name, version in pairs}


def instructions(dockerfile: str, name: str) -> list[str]:
    """Arguments of every instruction of that name, continuation lines joined."""
    joined = dockerfile.replace("\\\n", " ")
    return re.findall(rf"^{name} +(.*)$", joined, re.MULTILINE)


def test_hadolint_finds_nothing(root: Path) -> None:
    done = subprocess.run(
        [tool("hadolint"), root / "deploy/Dockerfile"], capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
    assert done.returncode == 0


@pytest.mark.parametrize("script", SCRIPTS)
def test_shellcheck_finds_nothing(root: Path, script: str) -> None:
    done = subprocess.run(
        [tool("shellcheck"), root / script], capture_output=True, text=True, check=False
    )
    assert done.stdout == ""


def test_the_image_runs_as_an_ordinary_user_in_its_last_stage(dockerfile: str) -> None:
    last = dockerfile.rsplit("\nFROM ", 1)[1]
    assert instructions(last, "USER") == ["10001:10001"]
    assert instructions(last, "HEALTHCHECK")
    assert instructions(last, "ENTRYPOINT") == ['["tini", "--", "entrypoint"]']


def test_every_stage_starts_from_a_pinned_image(dockerfile: str) -> None:
    (default,) = re.findall(r"^ARG PYTHON_IMAGE=(.*)$", dockerfile, re.MULTILINE)
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+", default)
    for stage in instructions(dockerfile, "FROM"):
        assert stage.startswith("${PYTHON_IMAGE} AS ")


def test_no_package_index_is_named(root: Path) -> None:
    for path in (root / "deploy").rglob("*"):
        if path.is_file() and "secrets" not in path.parts:
            assert not re.search(r"index-url +\S*https?:", path.read_text(errors="replace")), path


def test_everything_copied_into_the_image_is_let_through_and_exists(
    root: Path, dockerfile: str
) -> None:
    allowed = [
        line[1:] for line in (root / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    ]
    for arguments in instructions(dockerfile, "COPY"):
        if "--from=" in arguments:
            continue
        *sources, _ = [word for word in arguments.split() if not word.startswith("--")]
        for source in sources:
            assert (root / source).exists(), source
            assert any(fnmatch.fnmatch(source, pattern) for pattern in allowed), source


def test_the_build_sees_no_secrets(root: Path) -> None:
    lines = (root / ".dockerignore").read_text().splitlines()
    first = next(line for line in lines if line and not line.startswith("#"))
    assert first == "*"
    assert "!deploy" not in lines


def test_all_packages_of_the_project_are_copied(root: Path, dockerfile: str) -> None:
    copied = " ".join(instructions(dockerfile, "COPY")).split()
    links = [path for path in (root / "groktime").iterdir() if path.is_symlink()]
    assert len(links) == 5
    for name in ("groktime", *(path.readlink().name for path in links)):
        assert name in copied


def test_every_requirement_is_pinned_to_a_version_it_accepts(
    root: Path, constraints: dict[str, Version]
) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        wanted += extra
    for text in wanted:
        requirement = Requirement(text)
        if requirement.name != "groktime":
            name = canonicalize_name(requirement.name)
            assert name in constraints, f"{name}: run deploy/pin.py after scripts/setup --newest"
            assert constraints[name] in requirement.specifier, text


def test_what_is_installed_here_and_needed_is_pinned(constraints: dict[str, Version]) -> None:
    waiting, seen = [Requirement("groktime[dev]")], set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if (name, frozenset(wanted.extras)) in seen:
            continue
        seen.add((name, frozenset(wanted.extras)))
        assert name == "groktime" or name in constraints, name
        for text in distribution(wanted.name).requires or []:
            needed = Requirement(text)
            extras = wanted.extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in extras):
                waiting.append(needed)
    assert len(seen) > 100


def test_pins_have_no_local_version(constraints: dict[str, Version]) -> None:
    # torch==2.13.0+cpu would refuse the accelerator build, and the reverse.
    assert all(version.local is None for version in constraints.values())


def test_the_torch_check_refuses_the_other_build(root: Path) -> None:
    import torch

    other = "cpu" if torch.version.cuda else "cuda"
    check = [sys.executable, root / "deploy/check_torch.py", other]
    refused = subprocess.run(check, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "TORCH_INDEX_ARGS" in refused.stderr


def test_the_image_installs_the_projects_requirements(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]

    def printed(accelerator: str) -> list[str]:
        command = [sys.executable, root / "deploy/requirements.py", accelerator]
        return subprocess.check_output(command, cwd=root, text=True).splitlines()

    extras = project["optional-dependencies"]
    # The head of a cluster on AWS asks for machines itself.
    assert printed("cpu") == [*project["dependencies"], *extras["aws"]]
    assert printed("cuda") == [*project["dependencies"], *extras["aws"], *extras["gpu"]]


def test_an_index_of_torch_builds_is_asked_for_torch_alone(dockerfile: str) -> None:
    (line,) = (run for run in instructions(dockerfile, "RUN") if "${TORCH_INDEX_ARGS}" in run)
    assert "pip install --no-deps ${TORCH_INDEX_ARGS} --constraint constraints.txt torch " in line


def test_the_image_has_what_rays_cluster_launcher_runs_in_it(dockerfile: str) -> None:
    last = dockerfile.rsplit("\nFROM ", 1)[1]
    (installed,) = re.findall(r"apt-get install [^&]*", last.replace("\\\n", " "))
    assert {"rsync", "openssh-client"} <= set(installed.split())


def test_every_step_of_the_slurm_script_is_given_its_processors(root: Path) -> None:
    # Since 22.05 srun does not take --cpus-per-task from sbatch.
    script = (root / "deploy/slurm/sweep.sbatch").read_text().replace("\\\n", " ")
    (step,) = re.findall(r"srun [^\n]*ray start[^\n]*", script)
    assert '--cpus-per-task="$cpus"' in step
    assert '--num-cpus="$cpus"' in step


def test_the_entrypoint_reads_secrets_from_files(root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text("postgresql://somebody@somewhere/groktime\n")
    done = subprocess.run(
        [root / "deploy/entrypoint", "env"],
        env={"PATH": "/usr/bin:/bin", "GROKTIME_WRITER_URL_FILE": str(secret)},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert "GROKTIME_WRITER_URL=postgresql://somebody@somewhere/groktime" in lines
    assert not any(line.startswith("GROKTIME_WRITER_URL_FILE") for line in lines)


@pytest.mark.parametrize("content", [None, ""])
def test_the_entrypoint_refuses_a_missing_or_empty_secret(
    root: Path, tmp_path: Path, content: str | None
) -> None:
    secret = tmp_path / "token"
    if content is not None:
        secret.write_text(content)
    done = subprocess.run(
        [root / "deploy/entrypoint", "true"],
        env={"PATH": "/usr/bin:/bin", "GROKTIME_API_TOKEN_FILE": str(secret)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "GROKTIME_API_TOKEN_FILE" in done.stderr


def test_made_secrets_are_private_random_and_kept(root: Path, tmp_path: Path) -> None:
    def make() -> dict[str, str]:
        folder = tmp_path / "secrets"
        done = subprocess.run(
            [root / "deploy/make-secrets", folder], capture_output=True, text=True, check=True
        )
        assert done.stdout == f"SECRETS_DIR={folder}\n"
        assert folder.stat().st_mode & 0o777 == 0o700
        return {path.name: path.read_text() for path in folder.iterdir()}

    first = make()
    passwords = [value for name, value in first.items() if not name.endswith("_url")]
    assert all(re.fullmatch("[0-9a-f]{64}", value) for value in passwords)
    assert len(set(passwords)) == len(passwords)
    assert first["writer_url"].startswith(
        f"postgresql://groktime_worker:{first['worker_password']}@"
    )
    assert make() == first
