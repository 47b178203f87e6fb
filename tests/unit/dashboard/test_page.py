"""The page needs nothing but its own files, and runs under a strict policy."""

from __future__ import annotations

import ast
import gzip
import json
import re
from pathlib import Path

import plotly.graph_objects as go
import pytest
from plotly.basedatatypes import BaseTraceType

from groktime.dashboard.page import (
    COMPILE_ALL,
    CSP,
    SCRIPT,
    STATIC_DIR,
    VIEWS,
    joined,
    page,
    static_files,
    version,
)
from groktime.service.words import AXES, OPERATIONS

MODULES = sorted(path for path in STATIC_DIR.rglob("*.js") if "vendor" not in path.parts)


def test_everything_the_page_names_is_there() -> None:
    named = re.findall(r'(?:href|src)="/static/v-(\w+)/([^"]+)"', page())
    assert {own for own, _ in named} == {version()}
    assert {path for _, path in named} <= static_files().keys()


def test_the_script_of_the_page_holds_every_module_after_those_that_it_imports() -> None:
    script = joined()
    order = re.findall(r"^\{ // (\S+)$", script, re.MULTILINE)
    assert order[-1] == "app.js"
    assert sorted(order) == sorted(
        path.relative_to(STATIC_DIR).as_posix() for path in MODULES if path.name != "first-paint.js"
    )
    for module in order:
        for other in re.findall(r'from "(\.[^"]+)"', (STATIC_DIR / module).read_text()):
            name = (STATIC_DIR / module).parent.joinpath(other).resolve()
            if name.suffix == ".js":
                before = order[: order.index(module)]
                assert name.relative_to(STATIC_DIR.resolve()).as_posix() in before, module


def test_nothing_of_a_module_is_left_to_import_or_to_export() -> None:
    assert not re.search(r"^(?:import|export)\b|\bimport\(", joined(), re.MULTILINE)


def test_what_a_module_takes_is_what_another_gives() -> None:
    script = joined()
    gives = re.findall(r'^modules\["([^"]+\.js)"\] = \{(.*)\};$', script, re.MULTILINE)
    given = {name: {part.strip() for part in names.split(",")} for name, names in gives}
    taken = re.findall(r'^const \{([^}]*)\} = modules\["([^"]+)"\];$', script, re.MULTILINE)
    assert len(taken) > len(given)
    for names, module in taken:
        assert {part.strip() for part in names.split(",") if part.strip()} <= given[module], module


def test_what_asks_early_is_the_first_file_that_the_page_names() -> None:
    files = re.findall(r'(?:href|src)="/static/v-\w+/([^"]+)"', page())
    assert next(path for path in files if path != "icon.svg") == "first-paint.js"


def test_files_are_kept_as_they_are_and_compressed_where_that_helps() -> None:
    kept = dict(static_files())
    assert kept.keys() - {SCRIPT} == {
        path.relative_to(STATIC_DIR).as_posix() for path in STATIC_DIR.rglob("*") if path.is_file()
    }
    assert kept.pop(SCRIPT).body == joined().encode()
    for name, file in kept.items():
        assert file.body == (STATIC_DIR / name).read_bytes()
        if file.gzipped is not None:
            assert gzip.decompress(file.gzipped) == file.body
            assert len(file.gzipped) < len(file.body)
    assert kept["app.js"].gzipped is not None
    assert kept["vendor/inter/inter-latin-wght-normal.woff2"].gzipped is None


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
    assert {"scatter", "heatmap"} < named <= drawn
    library = (STATIC_DIR / "vendor" / "plotly" / "plotly.min.js").read_text()
    for kind in drawn:
        assert re.search(rf'\bname:"{kind}"', library), f"{kind}: run scripts/plotly"


def test_the_scripts_are_compiled_before_they_are_called() -> None:
    files = static_files()
    for name in (SCRIPT, "vendor/plotly/plotly.min.js"):
        assert files[name].body.startswith(COMPILE_ALL.encode() + b"\n"), name


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
