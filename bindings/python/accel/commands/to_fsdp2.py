"""The command `to-fsdp2`: a configuration file with settings of sharding of version 1 becomes one of version 2."""

import argparse
import enum
import logging
import pathlib

_logger = logging.getLogger(__name__)

description = "Converts a configuration file of sharded training from FSDP version 1 to 2."


class ConversionStatus(enum.Enum):
    """Why a key of version 1 is dropped."""

    NOT_YET_IMPLEMENTED = 0
    REMOVED = -1


_WHEN_RESHARDED = {"FULL_SHARD": True, "SHARD_GRAD_OP": False, "HYBRID_SHARD": True, "HYBRID_SHARD_ZERO2": False, "NO_SHARD": False}
_KEPT = """fsdp_version fsdp_reshard_after_forward fsdp_auto_wrap_policy fsdp_cpu_ram_efficient_loading fsdp_offload_params fsdp_state_dict_type
    fsdp_transformer_layer_cls_to_wrap fsdp_min_num_params fsdp_activation_checkpointing"""
# The key of version 2 for each of version 1, or why there is none.
ARGUMENT_KEY_MAPPING = {
    **{name: name for name in _KEPT.split()},
    "fsdp_sharding_strategy": "fsdp_reshard_after_forward",
    "fsdp_backward_prefetch": ConversionStatus.REMOVED,
    "fsdp_sync_module_states": ConversionStatus.REMOVED,
    "fsdp_use_orig_params": ConversionStatus.REMOVED,
    "fsdp_forward_prefetch": ConversionStatus.NOT_YET_IMPLEMENTED,
}
ARGUMENT_VALUE_MAPPING = {"fsdp_sharding_strategy": _WHEN_RESHARDED, "fsdp_reshard_after_forward": dict(_WHEN_RESHARDED)}


def convert_config_to_fsdp2(config):
    """The configuration with `fsdp_config` of version 2; as it was if there is none, or if it is of version 2 already."""
    old = config.get("fsdp_config") or {}
    if not old:
        _logger.info("There is no fsdp_config in the file: nothing to convert")
        return config
    if old.get("fsdp_version", 1) == 2:
        _logger.warning("fsdp_config is of version 2 already: nothing is converted. If its keys are those of version 1, set fsdp_version: 1 and "
                        "run the command again")
        return config
    new = {}
    for key, value in old.items():
        target = ARGUMENT_KEY_MAPPING.get(key, key)
        if isinstance(target, ConversionStatus):
            _logger.warning("%s is left out: version 2 does not have it%s", key, " yet" if target is ConversionStatus.NOT_YET_IMPLEMENTED else "")
        else:
            new[target] = ARGUMENT_VALUE_MAPPING.get(key, {}).get(value, value)
    config["fsdp_config"] = {**new, "fsdp_version": 2}
    return config


def load_config(config_file):
    """What is in a file of YAML, which the package pyyaml reads."""
    import yaml

    with open(config_file, encoding="utf-8") as file:
        config = yaml.safe_load(file)
    if not config:
        raise ValueError(f"Config file is empty: {config_file}; expected settings as the questionnaire of Accelerate writes them")
    return config


def to_fsdp2_command_parser(subparsers=None):
    """The parser of the command's arguments; with `subparsers` one of a larger program."""
    if subparsers is None:
        parser = argparse.ArgumentParser(prog="python -m accel.commands.to_fsdp2", description=description)
    else:
        parser = subparsers.add_parser("to-fsdp2", description=description)
        parser.set_defaults(func=to_fsdp2_command)
    parser.add_argument("--config_file", "--config-file", required=True, help="the file to convert")
    parser.add_argument("--overwrite", action="store_true", help="a file that is there is overwritten: the output file, or that of the input")
    parser.add_argument("--output_file", "--output-file", help="the file of the result; the input with --overwrite")
    return parser


def to_fsdp2_command(args):
    """Converts the file that the arguments name."""
    if not pathlib.Path(args.config_file).exists():
        raise FileNotFoundError(f"Config file {args.config_file} not found")
    if not args.overwrite and args.output_file is None:
        raise ValueError("If --overwrite is not set, --output_file must be provided")
    if not args.overwrite and pathlib.Path(args.output_file).exists():
        raise FileExistsError(f"Output file {args.output_file} already exists and --overwrite is not set")
    converted = convert_config_to_fsdp2(load_config(args.config_file))
    import yaml

    with open(args.output_file or args.config_file, "w", encoding="utf-8") as file:
        yaml.safe_dump(converted, file)


def main():
    to_fsdp2_command(to_fsdp2_command_parser().parse_args())


if __name__ == "__main__":
    main()
