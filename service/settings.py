"""One settings class, read from GROKTIME_* variables; prints no secrets."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


def _default_home() -> Path:
    """The data directory: /var/lib/groktime as root, else the XDG one."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return Path("/var/lib/groktime")
    return Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local" / "share")) / "groktime"


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
    writer_url: SecretStr | None = Field(
        default=None, description="URL workers write with; default: the owner's."
    )
    reader_url: SecretStr | None = Field(
        default=None, description="URL the API reads with; default: the owner's, read-only."
    )
    checkpoints: Path | None = Field(
        default=None,
        description="Folder of checkpoints, shared between nodes; default: home/checkpoints.",
    )
    checkpoint_seconds: float = Field(
        default=30.0, gt=0, description="At most this much training is repeated after a crash."
    )
    lease_seconds: float = Field(
        default=60.0, gt=0, description="A run whose lease is this old belongs to nobody."
    )
    device: str = Field(default="auto", description="auto, cpu, cuda, cuda:N or mps.")
    engine: Literal["auto", "native", "torch"] = Field(
        default="auto", description="auto takes the native engine wherever it can train the run."
    )
    gpu_step: Literal["plain", "graph", "compile"] = Field(
        default="plain",
        description="How a GPU is given its steps: one by one, as CUDA graphs, or compiled.",
    )
    ray_address: str | None = Field(
        default=None, description="Ray cluster to use; unset starts or joins a local one."
    )
    ray_jobs_address: str = Field(
        default="http://127.0.0.1:8265", description="Where sweeps are submitted as Ray jobs."
    )
    default_suite: str = Field(default="central", description="Suite of answers that name none.")
    api_token: SecretStr | None = Field(
        default=None, description="Bearer token that may start and stop sweeps; unset: nobody may."
    )
    read_token: SecretStr | None = Field(
        default=None, description="Bearer token needed to read; unset: reading is open."
    )
    host: str = Field(default="127.0.0.1", description="Address the API binds to.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port of the API.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="How much the project logs."
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="json writes one object a line, for log collectors."
    )

    @field_validator("home", "checkpoints")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        # Ray changes the working directory of workers, so a relative path would move.
        if value is not None and not value.is_absolute():
            raise ValueError(f"must be an absolute path, got {str(value)!r}")
        return value

    @property
    def embedded(self) -> bool:
        """True when no URL names a server, so that the embedded one is used."""
        return not (self.database_url or self.writer_url or self.reader_url)

    @property
    def checkpoint_dir(self) -> Path:
        return self.checkpoints or self.home / "checkpoints"


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """The process's settings, read once."""
    return Settings()
