"""A small client for notebooks: answers as dictionaries, tables as pandas frames.

from groktime import Client

groktime = Client()                       # http://127.0.0.1:8000
answer = groktime.crossing(prime=113)
answer["p_cross"]["estimate"], answer["status"]
groktime.frame("speeds", prime=113)       # a pandas frame: one row per run
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import httpx
import pandas as pd

from groktime.service.errors import GroktimeError

DEFAULT_URL = "http://127.0.0.1:8000"
Answer = dict[str, Any]


class Refused(GroktimeError):
    """The API refused the request; `problem` is its problem document."""

    def __init__(self, status: int, problem: Answer) -> None:
        accepted = problem.get("accepted")
        hint = f"; accepted: {accepted}" if accepted is not None else ""
        super().__init__(f"{problem.get('detail', status)}{hint}")
        self.status = status
        self.problem = problem


class Client:
    """Asks one groktime server; a context manager, or closed by `close()`."""

    def __init__(
        self, url: str = DEFAULT_URL, *, token: str | None = None, timeout: float = 60.0
    ) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the connections go."""
        self._http.close()

    def get(self, route: str, **parameters: Any) -> Answer:
        """The JSON answer of any route, such as `get("speeds", prime=113)`."""
        answer: Answer = self._ask("GET", route, parameters).json()
        return answer

    def frame(self, route: str, **parameters: Any) -> pd.DataFrame:
        """The CSV twin of any route as a frame."""
        text = self._ask("GET", route, {**parameters, "format": "csv"}).text
        return pd.read_csv(io.StringIO(text)) if text.strip() else pd.DataFrame()

    def crossing(self, prime: int | None = None, **parameters: Any) -> Answer:
        """Where memorisation and generalisation cross, and whether grokking starts there."""
        return self.get("crossing", prime=prime, **parameters)

    def onset(self, prime: int | None = None, **parameters: Any) -> Answer:
        """From which size on generalisation is delayed."""
        return self.get("onset", prime=prime, **parameters)

    def delay(self, prime: int | None = None, **parameters: Any) -> Answer:
        """Every run's generalisation delay."""
        return self.get("delay", prime=prime, **parameters)

    def regimes(self, prime: int | None = None, **parameters: Any) -> Answer:
        """Under capacity, memorised only, immediate or grokking at each size."""
        return self.get("regimes", prime=prime, **parameters)

    def speeds(self, prime: int | None = None, **parameters: Any) -> Answer:
        """T_mem and T_gen, per seed and centred."""
        return self.get("speeds", prime=prime, **parameters)

    def capacity(self, suite: str | None = None, **parameters: Any) -> Answer:
        """Capacity curves and the bits a parameter stores."""
        return self.get("capacity", suite=suite, **parameters)

    def law(self, suite: str | None = None, **parameters: Any) -> Answer:
        """T_mem against the capacity fraction over primes."""
        return self.get("law", suite=suite, **parameters)

    def delay_law(self, suite: str | None = None, **parameters: Any) -> Answer:
        """Laws of the delay, each tried on primes left out."""
        return self.get("delay_law", suite=suite, **parameters)

    def tests(self, suite: str | None = None, **parameters: Any) -> Answer:
        """Every cell of a suite and the tests on them."""
        return self.get("tests", suite=suite, **parameters)

    def suites(self) -> pd.DataFrame:
        """The suites there are, one row each."""
        return self.frame("suites").set_index("name", drop=False)

    def runs(self, **filters: Any) -> pd.DataFrame:
        """All runs that pass the filters, page by page, as one frame."""
        items = [item for page in self._pages(filters) for item in page["items"]]
        return pd.DataFrame(items)

    def curve(self, run: int, **parameters: Any) -> pd.DataFrame:
        """Every epoch of one run, indexed by epoch."""
        return self.frame(f"runs/{run}/curve", **parameters).set_index("epoch")

    def figure(self, chart: str, **parameters: Any) -> Any:
        """A chart as a Plotly figure."""
        import plotly.graph_objects as go

        return go.Figure(self.get(f"charts/{chart}", **parameters), skip_invalid=True)

    def start_sweep(self, suite: str, **more: Any) -> Answer:
        """Start a sweep; needs a client with the API token."""
        answer: Answer = self._ask("POST", "sweeps", {}, {"suite": suite, **more}).json()
        return answer

    def locate(self, prime: int, *, resources: Answer | None = None, **question: Any) -> Answer:
        """Start locating one cell, such as `locate(113, settings={"weight_decay": 0.3})`.

        `question` may give precision, place, seeds, widths, max_epochs, max_runs, max_hours,
        seeds_apart, prior, min_delay and min_delay_share; needs a client with the API token. The
        answer's `suite` is what to ask about.
        """
        body = {"locate": {"prime": prime, **question}, "resources": resources or {}}
        answer: Answer = self._ask("POST", "sweeps", {}, body).json()
        return answer

    def placement(self, suite: str) -> Answer:
        """How far the cells of a located suite are placed, and what comes next."""
        return self.get(f"suites/{suite}/placement")

    def stop_sweep(self, number: int) -> Answer:
        """End a sweep; what it recorded stays. Needs a client with the API token."""
        answer: Answer = self._ask("DELETE", f"sweeps/{number}", {}).json()
        return answer

    def _pages(self, filters: dict[str, Any]) -> Iterator[Answer]:
        cursor: str | None = None
        while True:
            page = self.get("runs", **{"limit": 1000, **filters, "cursor": cursor})
            yield page
            cursor = page["next"]
            if cursor is None:
                return

    def _ask(
        self, method: str, route: str, parameters: dict[str, Any], body: Answer | None = None
    ) -> httpx.Response:
        asked = {name: value for name, value in parameters.items() if value is not None}
        try:
            response = self._http.request(method, f"/{route}", params=asked, json=body)
        except httpx.TransportError as error:
            raise GroktimeError(
                f"{self._http.base_url} cannot be reached: is `groktime serve` running?"
            ) from error
        if response.is_error:
            is_json = "json" in response.headers.get("content-type", "")
            raise Refused(response.status_code, response.json() if is_json else {})
        return response
