"""Stop an image build whose torch is not the build that was asked for.

Reads torch's own version file instead of importing it, so that it can stop the build before the
gigabytes that torch needs are fetched.
"""

import runpy
import sys
from importlib.metadata import version
from importlib.util import find_spec

asked = sys.argv[1]
if asked not in ("cpu", "cuda"):
    sys.exit(f"ACCELERATOR = {asked!r}; accepted: cpu, cuda")
spec = find_spec("torch")
if spec is None or not spec.submodule_search_locations:
    sys.exit("torch is not installed")
found = (
    "cuda" if runpy.run_path(f"{spec.submodule_search_locations[0]}/version.py")["cuda"] else "cpu"
)
if found != asked:
    sys.exit(
        f"ACCELERATOR = {asked!r}, but this index serves torch {version('torch')} built for "
        f"{found}: name another with --build-arg TORCH_INDEX_ARGS='--index-url …'"
    )
