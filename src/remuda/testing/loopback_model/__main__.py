"""``python -m remuda.testing.loopback_model --port N``: the model by hand, with a line for each request."""

from __future__ import annotations

import argparse
import itertools

from .model_server import LoopbackModel


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m remuda.testing.loopback_model", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="the port on 127.0.0.1; a free one by default")
    options = parser.parse_args()
    with LoopbackModel(port=options.port) as model:
        print(f"ANTHROPIC_BASE_URL={model.url}", flush=True)
        try:
            for count in itertools.count(1):
                print(model.wait_for(lambda request: request.outcome != "open", 1e9, count=count), flush=True)
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
