"""Reading a compose file as Docker Compose would: variables filled in, services in order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?:(?P<operator>:-|:\?)(?P<rest>[^}]*))?\}")


class UnsetVariable(Exception):
    """The file asks for a variable that nobody set; its message says what to do."""


def interpolate(value: Any, variables: Mapping[str, str]) -> Any:
    """Fill in ${NAME}, ${NAME:-default} and ${NAME:?message} wherever there is text."""

    def fill(match: re.Match[str]) -> str:
        name, operator, rest = match["name"], match["operator"], match["rest"]
        if variables.get(name):
            return variables[name]
        if operator == ":?":
            raise UnsetVariable(f"{name}: {rest}")
        return rest or ""

    if isinstance(value, str):
        return VARIABLE.sub(fill, value)
    if isinstance(value, list):
        return [interpolate(item, variables) for item in value]
    if isinstance(value, dict):
        return {key: interpolate(item, variables) for key, item in value.items()}
    return value


def load(path: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    """The file's content with the variables filled in."""
    content: dict[str, Any] = interpolate(yaml.safe_load(path.read_text()), variables)
    return content


def variables_of(path: Path) -> set[str]:
    """Names of all variables the file reads from the environment of Docker Compose."""
    return {match["name"] for match in VARIABLE.finditer(path.read_text())}


def without_profile(services: Mapping[str, Any]) -> dict[str, Any]:
    """The services that start when no profile is asked for."""
    return {name: service for name, service in services.items() if not service.get("profiles")}


def in_start_order(services: Mapping[str, Any]) -> list[str]:
    """Names of the services, each after those it depends on."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name not in order:
            for other in services[name].get("depends_on", ()):
                visit(other)
            order.append(name)

    for name in services:
        visit(name)
    return order


def container_ports(service: Mapping[str, Any]) -> list[int]:
    """Ports the service listens on inside its container."""
    published = [entry.rsplit(":", 1)[-1] for entry in service.get("ports", ())]
    return [int(port) for port in (*service.get("expose", ()), *published)]


def mount_points(service: Mapping[str, Any]) -> Iterator[tuple[str | None, str]]:
    """(volume or host path, path in the container) of everything mounted; None is a tmpfs."""
    for entry in service.get("volumes", ()):
        source, target = entry.split(":")[:2]
        yield source, target
    for entry in service.get("tmpfs", ()):
        yield None, entry.split(":")[0]
