# SPDX-License-Identifier: Apache-2.0
"""The command `accel merge-weights`, for programs that call it from Python."""

from ..parallel.fsdp import merge_fsdp_weights
from .arguments import parser_of

description = "Makes one file of the weights of a model that several ranks wrote in parts."


def merge_command_parser(subparsers=None):
    """The parser of the command's arguments; with `subparsers` one of a larger program."""
    parser = parser_of("merge-weights", merge_command, subparsers, description)
    parser.add_argument("checkpoint_directory", help="the folder with the parts")
    parser.add_argument("output_path", help="the folder of the result")
    parser.add_argument("--unsafe_serialization", "--unsafe-serialization", action="store_true", help="pytorch_model.bin, not model.safetensors")
    parser.add_argument("--remove_checkpoint_dir", "--remove-checkpoint-dir", action="store_true", help="the parts are removed afterwards")
    return parser


def merge_command(args):
    merge_fsdp_weights(args.checkpoint_directory, args.output_path, not args.unsafe_serialization, args.remove_checkpoint_dir)


def main():
    merge_command(merge_command_parser().parse_args())
