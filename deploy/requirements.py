"""Print what the project needs at run time, so that an image can install it before the source."""

import sys
import tomllib

with open("pyproject.toml", "rb") as handle:
    project = tomllib.load(handle)["project"]
wanted = list(project["dependencies"])
if sys.argv[1] == "cuda":
    wanted += project["optional-dependencies"]["gpu"]
sys.stdout.write("\n".join(wanted) + "\n")
