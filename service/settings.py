"""One settings class, read from GROKTIME_* variables; prints no secrets."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


def _default_home() -> Path:
    """The data directory: /var/lib/groktime as root, else the XDG one."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return Path("/var/lib/groktime")
    return Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local" / "share")) / "groktime"


MAX_URL = 4096  # characters


class Settings(BaseSettings):
    """Everything that may differ between a laptop and a cluster."""

    model_config = SettingsConfigDict(env_prefix="GROKTIME_", extra="ignore")

    home: Path = Field(
        default_factory=_default_home,
        description="Where the embedded Postgres, checkpoints and caches live; a short path.",
    )
    database_url: SecretStr | None = Field(
        default=None,
        description="Postgres URL of the owner; unset means the embedded server under home.",
    )
    database_url_file: Path | None = Field(
        default=None,
        description="File that holds the database URL, so that no list of variables shows it.",
    )
    require_server: bool = Field(
        default=False,
        description="Never use the embedded Postgres; without a URL nothing runs. Set for jobs.",
    )
    writer_url: SecretStr | None = Field(
        default=None, description="URL workers write with; default: the owner's."
    )
    reader_url: SecretStr | None = Field(
        default=None, description="URL the API reads with; default: the owner's, read-only."
    )
    checkpoints: Path | str | None = Field(
        default=None,
        description="Folder of checkpoints, shared between nodes, or the URL of an object store, "
        "such as s3://bucket/folder; default: home/checkpoints.",
    )
    checkpoint_seconds: float = Field(
        default=30.0, gt=0, description="At most this much training is repeated after a crash."
    )
    lease_seconds: float = Field(
        default=60.0, gt=0, description="A run whose lease is this old is free for other workers."
    )
    device: str = Field(default="auto", description="auto, cpu, cuda, cuda:N or mps.")
    engine: Literal["auto", "native", "torch"] = Field(
        default="auto", description="auto takes the native engine wherever it can train the run."
    )
    gpu_step: Literal["plain", "graph", "compile"] = Field(
        default="graph",
        description="How a GPU is given its work: each epoch as one CUDA graph, kernel by kernel, "
        "or compiled.",
    )
    most_cpus: int | None = Field(
        default=None,
        ge=1,
        description="CPUs that an autoscaler may grow the cluster to; work is planned for so many.",
    )
    most_gpus: int | None = Field(
        default=None,
        ge=1,
        description="GPUs that an autoscaler may grow the cluster to, for a sweep on GPUs.",
    )
    ray_address: str | None = Field(
        default=None, description="Ray cluster to use; unset starts or joins a local one."
    )
    ray_jobs_address: str = Field(
        default="http://127.0.0.1:8265", description="Where sweeps are submitted as Ray jobs."
    )
    default_suite: str = Field(default="central", description="Suite of questions that name none.")
    api_token: SecretStr | None = Field(
        default=None, description="Bearer token that may start and stop sweeps; unset: nobody may."
    )
    read_token: SecretStr | None = Field(
        default=None, description="Bearer token needed to read; unset: reading is open."
    )
    host: str = Field(default="127.0.0.1", description="Address the API binds to.")
    allowed_hosts: str = Field(
        default="",
        description="Names the API is called by, beside the loopback ones and the address it is "
        "reached at; `a.example,*.b.example`, or `*` for any.",
    )
    trusted_proxies: str = Field(
        default="",
        description="Addresses or networks whose X-Forwarded-For names the client; unset: none.",
    )
    port: int = Field(default=8000, ge=0, le=65535, description="Port of the API.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="How much the project logs."
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="json writes one object a line, for log collectors."
    )

    @field_validator("checkpoints", mode="before")
    @classmethod
    def _path_or_url(cls, value: Any) -> Any:
        """A URL stays as it is written: a path would lose one of its slashes."""
        return value if value is None or "://" in str(value) else Path(value)

    @field_validator("home", "checkpoints")
    @classmethod
    def _absolute(cls, value: Path | str | None) -> Path | str | None:
        # Ray changes the working directory of workers, so a relative path would move.
        if isinstance(value, Path) and not value.is_absolute():
            raise ValueError(f"must be an absolute path, got {str(value)!r}")
        return value

    @model_validator(mode="after")
    def _database_is_named(self) -> Self:
        if self.database_url_file is not None and self.database_url is None:
            try:
                with self.database_url_file.open(encoding="utf-8") as file:
                    url = file.read(MAX_URL + 1).strip()
            except (OSError, UnicodeDecodeError) as problem:
                why = problem.strerror if isinstance(problem, OSError) else "is not text"
                raise ValueError(
                    f"GROKTIME_DATABASE_URL_FILE = {str(self.database_url_file)!r}: {why}"
                ) from None
            if not url or len(url) > MAX_URL:
                raise ValueError(
                    f"GROKTIME_DATABASE_URL_FILE = {str(self.database_url_file)!r}: "
                    "accepted: a file that holds the URL and nothing else"
                )
            self.database_url = SecretStr(url)
        if self.require_server and self.embedded:
            raise ValueError(
                "GROKTIME_DATABASE_URL is not set here, and this job was submitted by someone "
                "whose results go to a server: set it on the cluster, or submit with "
                "--pass-database-url"
            )
        return self

    @property
    def embedded(self) -> bool:
        """True when no URL names a server, so that the embedded one is used."""
        return not (self.database_url or self.writer_url or self.reader_url)

    @property
    def checkpoint_dir(self) -> Path | str:
        return self.checkpoints or self.home / "checkpoints"


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """The process's settings, read once."""
    return Settings()
