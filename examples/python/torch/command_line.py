"""The arguments that all examples have, and the package that they run with: accel, or $ACCEL_EXAMPLE_PACKAGE."""

import argparse
import importlib
import os

package = importlib.import_module(os.environ.get("ACCEL_EXAMPLE_PACKAGE", "accel"))
utils = importlib.import_module(package.__name__ + ".utils")


def parse(description, **defaults):
    """`--mixed_precision` and `--epochs`, and an option for each of `defaults`, of its type."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--mixed_precision", choices=["no", "fp16", "bf16"])
    for name, value in {"epochs": 2, **defaults}.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    return parser.parse_args()
