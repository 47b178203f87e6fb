"""Print what the project needs at run time, so that an image can install it before the source."""

import sys
import tomllib

with open("pyproject.toml", "rb") as handle:
    project = tomllib.load(handle)["project"]
extras = ["aws", "gpu"] if sys.argv[1] == "cuda" else ["aws"]
wanted = [*project["dependencies"]]
for extra in extras:
    wanted += project["optional-dependencies"][extra]
sys.stdout.write("\n".join(wanted) + "\n")
