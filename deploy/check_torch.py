"""Stop an image build whose torch is not the build that was asked for."""

import sys

import torch

asked = sys.argv[1]
if asked not in ("cpu", "cuda"):
    sys.exit(f"ACCELERATOR = {asked!r}; accepted: cpu, cuda")
found = "cuda" if torch.version.cuda else "cpu"
if found != asked:
    sys.exit(
        f"ACCELERATOR = {asked!r}, but this index serves torch {torch.__version__} built for "
        f"{found}: name another with --build-arg TORCH_INDEX_ARGS='--index-url …'"
    )
