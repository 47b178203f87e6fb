"""The page needs nothing but its own files, and runs under a strict policy."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import plotly.graph_objects as go
import pytest
from plotly.basedatatypes import BaseTraceType

from groktime.dashboard.page import CSP, STATIC_DIR, VIEWS, page, version
from groktime.service.words import AXES, OPERATIONS

MODULES = sorted(path for path in STATIC_DIR.rglob("*.js") if "vendor" not in path.parts)


def test_everything_the_page_names_is_there() -> None:
    named = re.findall(r'(?:href|src)="/static/v-(\w+)/([^"]+)"', page())
    assert {own for own, _ in named} == {version()}
    for _, path in named:
        assert (STATIC_DIR / path).is_file(), path


def test_files_are_named_beside_each_other_and_not_from_the_root() -> None:
    # A path from the root would miss the version, and be asked about at every visit.
    for path in [STATIC_DIR / "app.css", *MODULES]:
        assert "/static/" not in path.read_text(), path.name


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_modules_import_modules_that_exist(module: Path) -> None:
    for path in re.findall(r'from "(\.[^"]+)"', module.read_text()):
        assert (module.parent / path).resolve().is_file(), path


def test_every_view_has_its_module() -> None:
    assert {path.stem for path in (STATIC_DIR / "views").glob("*.js")} == {"start", *VIEWS}


def test_nothing_comes_from_elsewhere() -> None:
    own = [STATIC_DIR / "index.html", STATIC_DIR / "app.css", *MODULES]
    for path in own:
        found = re.findall(r"https?://[^\s\"')]+", path.read_text())
        links = [link for link in found if "www.w3.org" not in link]
        # A link to the paper is followed by hand; nothing of it is loaded.
        assert [link for link in links if not link.startswith("https://arxiv.org/")] == [], (
            path.name
        )


def test_scripts_are_neither_inline_nor_evaluated() -> None:
    scripts = dict(part.split(" ", 1) for part in CSP.split("; "))["script-src"]
    assert scripts == "'self'"
    assert not re.search(r"<script(?![^>]*\bsrc=)", page())
    assert not re.search(r"\son\w+=", page())


def test_themes_exchange_colours_one_for_one() -> None:
    palette = json.loads((STATIC_DIR / "palette.json").read_text())
    assert palette["light"].keys() == palette["dark"].keys()
    assert len(set(palette["light"].values())) == len(palette["light"])


def test_vendored_files_come_with_their_licence() -> None:
    for folder in (STATIC_DIR / "vendor").iterdir():
        assert (folder / "LICENSE").is_file(), folder.name


def test_the_vendored_plotly_draws_every_type_of_trace() -> None:
    entry = (STATIC_DIR.parent / "bundle" / "plotly.js").read_text()
    drawn = {"scatter", *re.findall(r'"plotly\.js/(?:lib|src/traces)/(?!core)(\w+)', entry)}
    kinds = {name.lower() for name in go.__all__ if _is_trace(getattr(go, name))}
    kinds -= json.loads((STATIC_DIR / "palette.json").read_text())["light"].keys()  # surface
    named = set()
    for figure in (STATIC_DIR.parent / "figures").glob("*.py"):
        for node in ast.walk(ast.parse(figure.read_text())):
            if isinstance(node, ast.Constant) and node.value in kinds:
                named.add(node.value)
    assert {"scatter", "scattergl"} < named <= drawn
    library = (STATIC_DIR / "vendor" / "plotly" / "plotly.min.js").read_text()
    for kind in drawn:
        assert re.search(rf'\bname:"{kind}"', library), f"{kind}: run scripts/plotly"


def _is_trace(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseTraceType)


def test_the_page_names_axes_and_operations_as_the_server_does() -> None:
    text = (STATIC_DIR / "suites.js").read_text()
    for table, words in (("AXIS_NAMES", AXES), ("OPERATIONS", OPERATIONS)):
        body = re.search(rf"const {table} = {{(.*?)}};", text, re.DOTALL)
        assert body is not None
        named = dict(re.findall(r'"?([\w+*/-]+)"?: "([^"]+)"', body[1]))
        assert named
        for key, name in named.items():
            assert name.lower() == words.get(key, key.replace("_", " ")), key
