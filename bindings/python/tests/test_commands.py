# SPDX-License-Identifier: Apache-2.0
"""The modules of Accelerate's commands: layers over the program accel."""

import argparse
import json
import os
import subprocess
import sys

import pytest

import accel
from accel.commands import program
from accel.commands.arguments import CustomArgumentParser
from accel.commands.config import get_config_parser
from accel.commands.config.config_args import BaseConfig, ClusterConfig, SageMakerConfig, load_config_from_file
from accel.commands.config.default import write_basic_config
from accel.commands.env import env_command, env_command_parser
from accel.commands.launch import _validate_launch_command, launch_command, launch_command_parser
from accel.commands.tpu import tpu_command_launcher, tpu_command_parser
from accel.utils.launch import (_convert_nargs_to_dict, _filter_args, arguments_of, options, prepare_multi_gpu_env,
                                prepare_simple_launcher_cmd_env)


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch, tmp_path):
    """Of the user."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "huggingface"))
    for name in ("ACCELERATE_CONFIG_FILE", "ACCELERATE_USE_CPU", "ACCELERATE_MIXED_PRECISION"):
        monkeypatch.delenv(name, raising=False)


def parse(*words):
    return launch_command_parser().parse_args(words)


def test_the_program_is_found(monkeypatch, tmp_path):
    assert program.ask("--version").startswith("accel ")
    monkeypatch.setenv("ACCEL_PROGRAM", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match="ACCEL_PROGRAM"):
        program.find_program()
    monkeypatch.delenv("ACCEL_PROGRAM")
    monkeypatch.setattr(program.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(program, "_BUILD_FOLDER", tmp_path)
    found = tmp_path / "bin" / "accel"
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(FileNotFoundError, match="was not found"):
        program.find_program()
    for place in (found, tmp_path / "accel"):  # what is installed beside the package comes first
        place.parent.mkdir(exist_ok=True)
        place.write_text("")
        place.chmod(0o700)
        assert program.find_program() == str(place)


def test_names_of_options_with_both_letters():
    for words in (("--mixed_precision", "bf16"), ("--mixed-precision", "bf16"), ("--mixed-precision=bf16",)):
        assert parse(*words, "train.py").mixed_precision == "bf16"
    args = parse("--multi-gpu", "--num_processes", "4", "train.py", "--learning-rate", "3", "--multi_gpu")
    assert args.multi_gpu and args.num_processes == 4 and args.nondefault == {"multi_gpu", "num_processes"}
    assert args.training_script == "train.py" and args.training_script_args == ["--learning-rate", "3", "--multi_gpu"]
    assert not parse("train.py").multi_gpu


def test_wrong_arguments_are_errors_of_the_parser(capsys):
    for words in (("--num_processes", "many", "train.py"), ("--no-such-option", "train.py"), ("--num_processes", "2")):
        with pytest.raises(SystemExit) as ended:
            parse(*words)
        assert ended.value.code == 2
    assert "--num_processes" in capsys.readouterr().err


def test_each_option_is_given_on_as_it_came():
    known = {option["name"] for option in options()}
    assert {"num_processes", "mixed_precision", "use_fsdp", "fsdp_sharding_strategy", "gpu_ids", "tpu", "dynamo_backend"} <= known
    assert arguments_of(parse("train.py", "--lr", "1")) == ["--", "train.py", "--lr", "1"]
    words = ["--num_processes=2", "--multi_gpu", "--mixed_precision=no", "--fsdp_offload_params=true"]
    assert sorted(arguments_of(parse(*words, "train.py"))[:4]) == sorted(words)
    # Also what was set behind the parser's back, as programs of Accelerate do.
    args = parse("train.py")
    args.num_processes = 3
    assert arguments_of(args) == ["--num_processes=3", "--", "train.py"]


def test_settings_of_command_line_and_file(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text("distributed_type: MULTI_CPU\nnum_processes: 4\nmixed_precision: bf16\n")
    args, _, of_file = _validate_launch_command(parse("--config_file", str(file), "--num_processes", "2", "train.py"))
    assert args.num_processes == 2 and args.mixed_precision == "bf16" and of_file
    args, defaults, of_file = _validate_launch_command(parse("--cpu", "--mixed_precision", "fp16", "train.py"))
    assert args.mixed_precision == "fp16" and args.cpu and not of_file and defaults is None


@pytest.mark.parametrize("words", [("--multi_gpu", "--cpu"), ("--num_processes", "0"), ("--module", "--no_python"), ("--mixed_precision", "fp17")])
def test_what_cannot_be_is_a_value_error(words):
    with pytest.raises((ValueError, SystemExit)):
        _validate_launch_command(parse(*words, "train.py"))


def test_commands_and_environments():
    args, *_ = _validate_launch_command(parse("--cpu", "--mixed_precision", "bf16", "--num_processes", "2", "--gradient_accumulation_steps", "4",
                                              "train.py", "--lr", "1"))
    command, environment = prepare_simple_launcher_cmd_env(args)
    assert command == [sys.executable, "train.py", "--lr", "1"]
    assert environment["ACCELERATE_MIXED_PRECISION"] == "bf16" and environment["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == "4"
    assert environment["PATH"] == os.environ["PATH"] and environment["WORLD_SIZE"] == "2"
    environment = prepare_multi_gpu_env(args)
    assert args.nproc_per_node == "2" and args.master_port.isdigit() and environment["ACCELERATE_MIXED_PRECISION"] == "bf16"
    args, *_ = _validate_launch_command(parse("--num_processes", "4", "--num_machines", "2", "--machine_rank", "1", "--main_process_ip", "10.0.0.1",
                                              "--main_process_port", "1234", "--same_network", "train.py"))
    prepare_multi_gpu_env(args)
    assert (args.nproc_per_node, args.nnodes, args.node_rank, args.master_addr, args.master_port) == ("2", "2", 1, "10.0.0.1", "1234")


def test_launch(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import os, sys\nopen(f\"{sys.argv[1]}/{os.environ['RANK']}\", 'w').write(os.environ['ACCELERATE_MIXED_PRECISION'])\n"
                      "sys.exit(int(sys.argv[2]))\n")
    words = ("--num_processes", "2", "--cpu", "--mixed_precision", "bf16", str(script), str(tmp_path))
    launch_command(parse(*words, "0"))
    assert [(tmp_path / rank).read_text() for rank in "01"] == ["bf16", "bf16"]
    with pytest.raises(subprocess.CalledProcessError) as failed:
        launch_command(parse(*words, "3"))
    assert failed.value.returncode == 3
    with pytest.raises(SystemExit) as ended:
        launch_command(parse("--quiet", *words, "3"))
    assert ended.value.code == 1
    with pytest.raises(ValueError, match="num.processes"):
        launch_command(parse("--num_processes", "0", str(script)))


def test_subcommands_of_a_larger_program():
    parser = CustomArgumentParser("large", allow_abbrev=False)
    below = parser.add_subparsers()
    launch_command_parser(below)
    args = parser.parse_args(["launch", "--num-processes", "2", "train.py"])
    assert args.func is launch_command and args.num_processes == 2


def test_arguments_of_scripts():
    assert _convert_nargs_to_dict(["--name", "bert", "--train", "False", "--epochs", "3", "--rate", "5e-5", "--steps", "50.5"]) == {
        "name": "bert", "train": False, "epochs": 3, "rate": 5e-5, "steps": 50.5}
    for words in (["--train", "--epochs", "3"], ["--epochs"], ["epochs", "3"]):
        with pytest.raises(ValueError, match="expected a name with a value"):
            _convert_nargs_to_dict(words)
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--rest", default="kept")
    assert vars(_filter_args(argparse.Namespace(epochs=4, unknown=5), parser)) == {"epochs": 4, "rest": "kept"}


def test_configurations_are_read_by_the_program(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("distributed_type: FSDP\nfp16: true\ndynamo_backend: INDUCTOR\nnum_processes: 4\nfsdp_config:\n  fsdp_version: 2\n"
                    "ddp:\n  bucket_mb: 10\n")
    config = load_config_from_file(str(file))
    assert isinstance(config, ClusterConfig) and config.mixed_precision == "fp16" and config.dynamo_config == {"dynamo_backend": "INDUCTOR"}
    assert config.num_processes == 4 and config.distributed_type == "FSDP" and config.fsdp_config == {"fsdp_version": 2}
    for name, write in (("again.json", config.to_json_file), ("again.yaml", config.to_yaml_file)):
        write(tmp_path / name)
        assert load_config_from_file(tmp_path / name).to_dict() == config.to_dict()
    sagemaker = tmp_path / "sagemaker.yaml"
    sagemaker.write_text("compute_environment: AMAZON_SAGEMAKER\ndistributed_type: NO\nec2_instance_type: ml\niam_role_name: role\n")
    assert isinstance(load_config_from_file(sagemaker), SageMakerConfig)
    with pytest.raises(ValueError, match="expected a ClusterConfig"):
        ClusterConfig.from_yaml_file(sagemaker)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_config_from_file(None)
    file.write_text("distributed_type: NO\nno_such_key: 1\nnor_this: 2\n")
    with pytest.raises(ValueError, match="(?s)config.yaml.*no_such_key.*nor_this|no_such_key.*nor_this.*config.yaml"):
        load_config_from_file(file)
    file.write_text("num_processes: 2\n")
    with pytest.raises(ValueError, match="distributed_type"):
        load_config_from_file(file)


def test_basic_configuration(tmp_path, capsys):
    file = tmp_path / "folder" / "config.json"
    assert write_basic_config("bf16", file) == file
    config = load_config_from_file(file)
    assert config.mixed_precision == "bf16" and config.compute_environment == "LOCAL_MACHINE" and config.num_processes >= 1
    assert write_basic_config("no", file) is False and "already exists" in capsys.readouterr().out
    with pytest.raises(ValueError, match="fp17"):
        write_basic_config("fp17", tmp_path / "other.json")
    parser = get_config_parser()
    args = parser.parse_args(["update", "--config_file", str(file)])
    args.func(args)
    assert "Successfully updated" in capsys.readouterr().out
    with pytest.raises(ValueError, match="doesn't exist"):
        args.func(parser.parse_args(["update", "--config_file", str(tmp_path / "none")]))


def test_the_report_of_a_machine(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("accel.commands.env.which", lambda name: None)
    info = env_command(env_command_parser().parse_args([]))
    printed = capsys.readouterr().out
    assert info["`accelerate` bash location"] == "Not found" and info["`Accelerate` configs"] == "Not found"
    assert f"- Python version: {info['Python version']}" in printed and info["accel"] == accel.__version__
    file = tmp_path / "config.yaml"
    file.write_text("distributed_type: NO\nnum_processes: 1\n")
    info = env_command(env_command_parser().parse_args(["--config_file", str(file)]))
    assert info["`Accelerate` configs"]["num_processes"] == 1 and "\t- num_processes: 1" in capsys.readouterr().out


def test_commands_for_tpus_are_shown(capsys):
    words = ["--command", "ls", "--command", "pwd", "--tpu_zone", "zone", "--tpu_name", "name", "--debug"]
    tpu_command_launcher(tpu_command_parser().parse_args(words))
    assert "tpu-vm ssh name --zone zone --command cd /usr/share; ls; pwd --worker all" in capsys.readouterr().out


def test_the_whole_program(monkeypatch):
    done = subprocess.run([sys.executable, "-m", "accel.commands.accelerate_cli", "--version"], capture_output=True, text=True, timeout=60)
    assert done.stdout == program.ask("--version")


def test_configurations_are_objects(tmp_path):
    common = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "MULTI_CPU", "mixed_precision": "bf16", "use_cpu": True, "debug": False}
    config = ClusterConfig(**common, num_processes=2, fsdp_config={"fsdp_version": 2})
    assert BaseConfig(**common).distributed_type == "MULTI_CPU" and config.parallelism_config == {} and config.num_machines == 1
    values = config.to_dict()
    assert values["fsdp_config"] == {"fsdp_version": 2} and values["distributed_type"] == "MULTI_CPU" and "parallelism_config" not in values
    config.to_json_file(tmp_path / "config.json")
    assert json.loads((tmp_path / "config.json").read_text()) == values
    with pytest.raises(ValueError, match="MULTI_NOTHING"):
        ClusterConfig(**{**common, "distributed_type": "MULTI_NOTHING"})
    sagemaker = SageMakerConfig("AMAZON_SAGEMAKER", "NO", "fp16", False, False, ec2_instance_type="ml", iam_role_name="role")
    assert sagemaker.region == "us-east-1" and sagemaker.to_dict()["compute_environment"] == "AMAZON_SAGEMAKER"
