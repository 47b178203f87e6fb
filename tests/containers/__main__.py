"""Build the image, start the compose file's services as containers, train, ask /crossing."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
import urllib.parse
from pathlib import Path

from containers.images import (
    GROKTIME,
    ROOT,
    ContainerError,
    Engine,
    make_base,
    make_groktime,
    make_postgres,
)
from containers.services import running

STORAGE = Path("/var/tmp/groktime-containers")
SUITE = ROOT / "tests/integration/deploy/topology_mini.yaml"


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/containers", description=__doc__)
    parser.add_argument("suite", nargs="?", type=Path, default=SUITE, help="a suite's .yaml file")
    parser.add_argument("--prime", type=int, default=23, help="of the crossing asked for")
    parser.add_argument("--storage", type=Path, default=STORAGE, help="where images are kept")
    parser.add_argument("--use-image", action="store_true", help="the image built last time")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        engine = Engine(options.storage, say)
        make_base(engine)
        make_postgres(engine)
        if not (options.use_image and engine.has(GROKTIME)):
            make_groktime(engine)
        image = engine.inspect(GROKTIME)
        say(f"image: {image['Size'] / 1e9:.2f} GB, user {image['User']}")
        started = time.monotonic()
        with running(engine) as services:
            say(f"services healthy after {time.monotonic() - started:.0f} s")
            started = time.monotonic()
            say(services.submit(options.suite))
            say(f"job done after {time.monotonic() - started:.0f} s")
            question = {"suite": options.suite.stem, "prime": options.prime}
            status, body = services.get(f"/crossing?{urllib.parse.urlencode(question)}")
            if status != 200:
                raise ContainerError(f"/crossing answered {status}: {body}")
            sys.stdout.write(json.dumps(json.loads(body)) + "\n")
    except ContainerError as error:
        say(f"containers: {error}")
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
