"""Questions that cannot be answered as put, each with what would have been accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.errors import AnalysisError

Accepted = Sequence[object] | Mapping[str, Sequence[object]] | str


class Refusal(AnalysisError):
    """A question was refused: the parameter, its value and what is accepted."""

    def __init__(self, parameter: str, value: object, accepted: Accepted, why: str) -> None:
        super().__init__(f"{parameter}: {why}")
        self.parameter = parameter
        self.value = value
        self.accepted = accepted


class Unknown(Refusal):
    """What was named is not in the database; `accepted` lists what is."""


class Ambiguous(Refusal):
    """Several settings match; `accepted` maps each axis to the values to choose from."""


class NotEnough(Refusal):
    """The runs that the answer needs have not been trained yet."""
