# SPDX-License-Identifier: Apache-2.0
"""The command `estimate-memory` for models of the hub, and for configurations of transformers: what loading and training one takes, without
its weights.

`accel estimate-memory` does it for files and folders of weights, without torch; for others it asks `model_shapes.py`.
"""

import argparse
import os

from ..big_models.device_maps import calculate_maximum_sizes
from ..big_models.init_on_device import init_empty_weights
from ..compat.other import convert_bytes
from .model_shapes import add_timm_hub_prefix, model_of, model_of_timm  # noqa: F401  (the first: a name of this module)

# How many numbers of float32 take the bytes of one of each type.
_PER_FLOAT32 = {"float32": 1, "float16": 2, "int8": 4, "int4": 8}


def verify_on_hub(repo, token=None):
    """The hub's description of a model; "gated" where the hub gives none without permission or cannot be reached, "repo" for a name that it does
    not have."""
    import huggingface_hub
    from huggingface_hub.utils import GatedRepoError, RepositoryNotFoundError

    try:
        return huggingface_hub.model_info(repo, token=token)
    except (OSError, GatedRepoError) as error:
        return "repo" if isinstance(error, RepositoryNotFoundError) and not isinstance(error, GatedRepoError) else "gated"


def check_has_model(error):
    """The library whose error says that there is no model: "timm", "transformers" or "unknown"."""
    text = str(error)
    if isinstance(error, KeyError) and "architecture" in text or isinstance(error, RuntimeError) and "Unknown model" in text:
        return "timm"
    if type(error).__name__ == "EntryNotFoundError":
        return "timm"
    of_transformers = ("does not appear to have a file named", "Unrecognized model in")
    return "transformers" if isinstance(error, (OSError, ValueError)) and any(part in text for part in of_transformers) else "unknown"


def create_empty_model(model_name, library_name, trust_remote_code=False, access_token=None):
    """A model of the hub without memory, by `transformers` or `timm`; without library_name by the one that the hub names. A folder with a
    config.json, or a file of this kind, is a model of transformers."""
    if os.path.exists(model_name) and library_name != "timm":
        return model_of(model_name, trust_remote_code)
    info = verify_on_hub(model_name, access_token)
    if isinstance(info, str):
        raise OSError(f"{model_name} is {'gated, or the hub cannot be reached; log in with `hf auth login`' if info == 'gated' else 'not on the hub'}")
    library = library_name or getattr(info, "library_name", None)
    if not library:
        raise ValueError(f"the hub does not say for which library {model_name} is; expected --library_name")
    if library == "transformers":
        return _of_transformers(model_name, info, trust_remote_code, access_token)
    if library == "timm":
        return model_of_timm(model_name)
    raise ValueError(f"{model_name} is a model for {library}; expected transformers or timm")


def _of_transformers(model_name, info, trust_remote_code, access_token):
    import torch
    import transformers

    if info.config is None:
        raise RuntimeError(f"{model_name} has no configuration on the hub")
    config = transformers.AutoConfig.from_pretrained(model_name, trust_remote_code=trust_remote_code, token=access_token)
    classes = [name for name in info.config.get("auto_map") or () if name.startswith("AutoModelFor")]
    with init_empty_weights():
        return getattr(transformers, (classes or ["AutoModel"])[0]).from_config(config, dtype=torch.float32, trust_remote_code=trust_remote_code)


def create_ascii_table(headers, rows, title):
    """A table with a frame."""
    widths = [max(map(len, column)) for column in zip(headers, *rows)]
    widths[-1] += max(0, len(title) - sum(widths) - len(widths) + 1)

    def line(left, between, right):
        return left + between.join("─" * width for width in widths) + right

    def row(cells):
        return "│" + "│".join(cell.center(width) for cell, width in zip(cells, widths)) + "│"

    inner = sum(widths) + len(widths) - 1
    return "\n".join([line("┌", "─", "┐"), f"│{title.center(inner)}│", line("├", "┬", "┤"), row(headers), line("├", "┼", "┤"), *map(row, rows),
                      line("└", "┴", "┘")])


def estimate_command_parser(subparsers=None):
    """The arguments of the command."""
    description = "What loading and training a model of the hub takes."
    parser = argparse.ArgumentParser(description=description) if subparsers is None else subparsers.add_parser("estimate-memory")
    parser.add_argument("model_name", help="name on the hub, or a folder with a config.json")
    parser.add_argument("--library_name", choices=["timm", "transformers"], help="the model's library; default: what the hub says")
    parser.add_argument("--dtypes", nargs="+", default=list(_PER_FLOAT32), choices=list(_PER_FLOAT32), help="types of the weights")
    parser.add_argument("--trust_remote_code", action="store_true", help="run code of the model from the hub on this machine")
    if subparsers is not None:
        parser.set_defaults(func=estimate_command)
    return parser


def estimate_training_usage(bytes, mixed_precision, msamp_config=None):
    """Bytes for training with Adam a model that has `bytes` in float32: of the model, its gradients, the optimizer and a step; -1 where that is
    not done in this type."""
    half = mixed_precision in ("float16", "bfloat16") or mixed_precision == "fp8" and msamp_config is None
    if mixed_precision != "float32" and not half:
        return dict.fromkeys(("model", "optimizer", "gradients", "step"), -1)
    return {"model": bytes, "optimizer": 2 * bytes, "gradients": bytes + bytes // 2 if half else bytes, "step": 2 * bytes if half else 4 * bytes}


def gather_data(args):
    """Rows of type, bytes of the largest layer, bytes of the model, and estimate_training_usage()."""
    try:
        model = create_empty_model(args.model_name, args.library_name, args.trust_remote_code)
    except (RuntimeError, OSError, ValueError, KeyError) as error:
        library = check_has_model(error)
        if library == "unknown":
            raise
        raise RuntimeError(f"{args.model_name} has no model for {library}: {error}") from error
    total, (largest, _) = calculate_maximum_sizes(model)

    def part(count, kind):
        return count if kind == "float32" else count / _PER_FLOAT32[kind]

    return [[kind, part(largest, kind), part(total, kind), estimate_training_usage(total, kind)] for kind in args.dtypes]


def estimate_command(args):
    """Prints the table."""
    def shown(usage):
        return "N/A" if max(usage.values()) == -1 else convert_bytes(max(usage.values()))

    rows = [[kind, convert_bytes(largest), convert_bytes(total), shown(usage)] for kind, largest, total, usage in gather_data(args)]
    print(create_ascii_table(["dtype", "Largest Layer", "Total Size", "Training using Adam"], rows, f"Memory of {args.model_name}"))


def main():
    estimate_command(estimate_command_parser().parse_args())


if __name__ == "__main__":
    main()
