# SPDX-License-Identifier: Apache-2.0
"""`python3 -m accel.commands.model_shapes MODEL`: the modules and the shapes of a model of transformers or timm as JSON, for
`accel estimate-memory`.

MODEL is a folder with a config.json, such a file, a name on the hub, or with timm one of its own. No memory is taken, and no weights are read."""

import argparse
import contextlib
import json
import os
import sys

from ..big_models.init_on_device import init_empty_weights
from ..big_models.module_tensors import find_tied_parameters


def empty_model_of(config, trust_remote_code=False):
    """The model of a configuration of transformers: of the first of its architectures that there is, else the one without a head."""
    import torch
    import transformers

    named = next((name for name in getattr(config, "architectures", None) or () if hasattr(transformers, name)), None)
    own = [name for name in getattr(config, "auto_map", None) or () if name.startswith("AutoModel")]
    with init_empty_weights(include_buffers=True):
        if named is not None:
            return getattr(transformers, named)._from_config(config, dtype=torch.float32)
        auto = getattr(transformers, own[0] if own and trust_remote_code else "AutoModel")
        return auto.from_config(config, dtype=torch.float32, trust_remote_code=trust_remote_code)


def add_timm_hub_prefix(model_name):
    """The name under which timm looks for a model on the hub; names of its own models, and with a prefix, stay."""
    return model_name if ":" in model_name or "/" not in model_name else f"hf-hub:{model_name}"


def model_of_timm(name):
    """A model of timm, by a name of its own or one on the hub."""
    import timm

    with init_empty_weights():
        return timm.create_model(add_timm_hub_prefix(name), pretrained=False)


def library_on_hub(name):
    """The library for which the hub has a model; None where it does not say, or cannot be asked."""
    try:
        import huggingface_hub

        return getattr(huggingface_hub.model_info(name), "library_name", None)
    except Exception:  # the hub's client has errors of its own
        return None


def model_of(name, trust_remote_code=False, library=None):
    """The shapes of a folder, a file, or a name on the hub, which says the library where none is given."""
    if library is None and not os.path.exists(name):
        library = library_on_hub(name)
    if library == "timm":
        return model_of_timm(name)
    if library not in (None, "transformers"):
        raise ValueError(f"it is a model for {library}; expected transformers or timm")
    import transformers

    if os.path.isfile(name):
        with open(name, encoding="utf-8") as file:
            settings = json.load(file)
        if not isinstance(settings, dict) or "model_type" not in settings:
            raise ValueError(f"{name} has no model_type; expected the config.json of a model of transformers")
        if os.path.basename(name) == "config.json":
            name = os.path.dirname(name) or "."
        elif "auto_map" not in settings:
            return empty_model_of(transformers.AutoConfig.for_model(**settings))
        else:
            raise ValueError(f"{name} names code of its own, which lies beside a config.json; expected a file of this name")
    return empty_model_of(transformers.AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code), trust_remote_code)


def shapes_of(model):
    """`modules`: the classes by paths, each behind the one that it is in. `parameters` and `buffers`: shapes, dtypes, and whether they are
    trained, by paths. `tied`: the paths of parameters that are one; each is among the parameters by the first of them."""
    def entry(tensor):
        return {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch."), "requires_grad": tensor.requires_grad}

    tied = find_tied_parameters(model)
    names = {name: next((group[0] for group in tied if name in group), name) for name, _ in model.named_parameters()}
    return {"modules": {path: type(module).__name__ for path, module in model.named_modules()},
            "parameters": {names[name]: entry(parameter) for name, parameter in model.named_parameters()},
            "buffers": {name: entry(buffer) for name, buffer in model.named_buffers()}, "tied": tied}


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="accel.commands.model_shapes", description=__doc__.partition("\n")[2].strip())
    parser.add_argument("model", help="a folder with a config.json, such a file, a name on the hub, or with timm one of its own")
    parser.add_argument("--library-name", "--library_name", choices=["timm", "transformers"], help="the model's library; default: what the hub says")
    parser.add_argument("--trust-remote-code", "--trust_remote_code", action="store_true", help="run code of the model on this machine")
    given = parser.parse_args(arguments)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # code of a model may print
            shapes = shapes_of(model_of(given.model, given.trust_remote_code, given.library_name))
    except ImportError as error:
        sys.exit(f"{given.model} needs the Python package {error.name or 'transformers'}, which is not there: {error}")
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        sys.exit(f"{given.model}: {error}")
    json.dump(shapes, sys.stdout)
    print()


if __name__ == "__main__":
    main()
