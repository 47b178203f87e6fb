"""A suite as a database or a dump keeps it: read back, and held against the hash it claims."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic import ValidationError

from groktime.service.errors import SuiteError
from groktime.service.suites.document import Document, field_name
from groktime.service.suites.loader import Suite, digest_of, is_path
from groktime.service.suites.schema import SuiteFile
from groktime.service.suites.values import readable


def read_stored(name: str, spec: Any) -> Suite:
    """The suite of a stored spec; refuses one that no suite file could have given."""
    document = Document(f"suite {name}", spec, {})
    try:
        file = SuiteFile.model_validate(spec)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = field_name((*first["loc"], *first.get("ctx", {}).get("at", ())))
        raise SuiteError(f"suite {name}: {where or 'spec'}: {readable(first)}") from None
    except (TypeError, ValueError, RecursionError) as problem:
        raise SuiteError(f"suite {name}: spec: {str(problem)[:200]}") from None
    suite = Suite(name, file, document)
    suite.expansion  # noqa: B018  refuse runs that cannot exist
    return suite


def check_stored(
    name: str, spec: Any, digest: str, own: Collection[str], inherited: Collection[str]
) -> bool:
    """Refuse a spec that is no suite, or a hash that is not its own.

    `own` and `inherited` are the keys of the runs that come with it. False: the hash cannot be
    told, since a suite that it inherits from is a file of somebody else's (which is not read).
    """
    suite = read_stored(name, spec)
    keys = {member.spec.key for member in suite.members()}
    strange = set(own) - keys
    donors: dict[str, list[str]] = {}
    if any(is_path(entry.suite) for entry in suite.file.inherits):
        return False
    for entry in suite.inherited:
        found = {member.spec.key for member in entry.members}
        donors[entry.suite] = sorted({*donors.get(entry.suite, ()), *found})
    if not strange and digest == digest_of(suite.file, keys, donors):
        return True
    # Specs once lost settings that say the default explicitly; the runs themselves did not.
    if digest == digest_of(suite.file, own, donors):
        return True
    if strange:
        raise SuiteError(f"suite {name}: {len(strange)} of the runs are not runs of this suite")
    raise SuiteError(f"suite {name}: hash: {digest[:12]} is not that of its spec")
