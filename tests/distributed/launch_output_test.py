#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the launcher says: plans, reports of the machine, logs, prefixes, and readers who are slow or gone.

usage: launch_output_test.py PATH_OF_ACCEL [unittest argument ...]
"""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import launch_test
from launch_test import GONE_WITHIN, LaunchTest, clean_environment, free_port, launch


class DryRun(LaunchTest):
    """What would be started, without starting it."""

    FILE = ("compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 3\n"
            "fsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: true\n")

    def plan(self, *arguments, **variables):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "job.yaml")
            pathlib.Path(path).write_text(self.FILE)
            result = launch("--dry-run", "--json", "--config_file", path, *arguments,
                            environment=clean_environment(**variables))
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            plan = json.loads(result.stdout)
            plan["settings"] = {name: (one["value"], one["source"].replace(path, "job.yaml"))
                                for name, one in plan["settings"].items()}
            return plan

    def test_each_value_has_its_source(self):
        plan = self.plan("--fsdp_version", "1", "--num_processes", "2", "train.py", "--lr", "1",
                         ACCELERATE_MIXED_PRECISION="no", FSDP_STATE_DICT_TYPE="FULL_STATE_DICT")
        self.assertEqual(plan["launcher"], "processes")
        self.assertEqual(plan["command"], ["python3", "train.py", "--lr", "1"])
        self.assertEqual([rank["environment"] for rank in plan["ranks"]],
                         [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)])
        expected = {"num_processes": ("2", "command line"), "fsdp_version": ("1", "command line"),
                    "mixed_precision": ("no", "ACCELERATE_MIXED_PRECISION"), "use_fsdp": ("true", "job.yaml:2"),
                    "fsdp_state_dict_type": ("FULL_STATE_DICT", "FSDP_STATE_DICT_TYPE"),
                    "fsdp_offload_params": ("true", "job.yaml:7"), "fsdp_min_num_params": ("100000000", "default")}
        self.assertEqual({name: plan["settings"][name] for name in expected}, expected)
        environment = plan["environment"]
        self.assertEqual((environment["ACCELERATE_USE_FSDP"], environment["FSDP_OFFLOAD_PARAMS"]), ("true", "true"))
        self.assertNotIn("ACCELERATE_MIXED_PRECISION", environment)  # the ranks inherit the user's

    def test_it_is_what_ranks_then_get(self):
        plan = self.plan("--main_process_port", str(free_port()), "sh", "-c", "env")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "job.yaml")
            path.write_text(self.FILE)
            result = launch("--config_file", str(path), "--main_process_port", plan["environment"]["MASTER_PORT"], "--",
                            "sh", "-c", "env")
        found = dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
        for name, value in {**plan["environment"], **plan["ranks"][0]["environment"]}.items():
            self.assertEqual(found[name], value, name)

    def test_it_is_told_to_people_too(self):
        result = launch("--dry-run", "--num-processes", "2", "--fp8_margin", "1", "echo", "a b", "it's")
        self.assertEqual(result.returncode, 0)
        self.assertIn("command:\n  echo 'a b' 'it'\\''s'\nranks 0 to 1 of 2, with\n", result.stdout)
        self.assertIn("  num_processes = 2 (command line)\n", result.stdout)
        self.assertIn("note: --fp8-margin has no effect without --mixed-precision fp8\n", result.stdout)

    def test_notes_are_said_before_ranks_start_unless_quiet(self):
        result = launch("--zero_stage", "2", "sh", "-c", "echo rank >&2")
        self.assertEqual(result.stderr, "accel launch: --zero-stage has no effect without --use-deepspeed\nrank\n")
        self.assertEqual(launch("--quiet", "--zero_stage", "2", "true").stderr, "")

    def test_a_port_in_use_gives_way_with_a_line(self):
        with socket.socket() as other:
            other.bind(("0.0.0.0", 0))
            other.listen()
            port = other.getsockname()[1]
            result = launch("--main_process_port", str(port), "sh", "-c", "echo $MASTER_PORT")
        self.assertEqual(result.stderr, f"accel launch: --main-process-port is {port}, which another program has; the "
                                        "ranks meet at a free port\n")
        self.assertNotEqual(result.stdout, f"{port}\n")

    def test_under_megatrons_settings_the_last_rank_is_shown(self):
        result = launch("--cpu", "--use-megatron-lm", "--num-processes", "2", "sh", "-c", "echo $RANK $MEGATRON_LM_TP_DEGREE")
        self.assertEqual((result.returncode, result.stdout), (0, "1 1\n"), result.stderr)

    def test_options_are_listed_with_the_defaults_of_accelerate(self):
        options = {one["name"]: one for one in json.loads(launch("--list-options").stdout)}
        self.assertGreaterEqual(len(options), 140)
        self.assertEqual(options["num_processes"]["default"], None)
        self.assertEqual(options["fsdp_version"]["default"], "1")
        self.assertEqual(options["fsdp_min_num_params"]["default"], 100000000)
        self.assertEqual(options["cpu"]["default"], False)
        self.assertEqual((options["module"]["aliases"], options["module"]["kind"]), (["m"], "flag"))
        self.assertEqual(options["mixed_precision"]["choices"], ["no", "fp16", "bf16", "fp8"])
        self.assertIsNone(options["mixed_precision"]["reason"])
        self.assertEqual((options["fp8_format"]["default"], options["fp8_amax_history_len"]["aliases"]), ("HYBRID", ["fp8_amax_history_length"]))
        self.assertEqual((options["megatron_lm_tp_degree"]["default"], options["megatron_lm_sequence_parallelism"]["kind"]), (1, "yes_or_no"))
        self.assertNotIn("default", options["prefix"])


class EnvironmentReport(LaunchTest):
    def report(self, *arguments, **variables):
        result = subprocess.run([launch_test.ACCEL, "env", *arguments], capture_output=True, text=True, timeout=60, check=False,
                                env=clean_environment(**variables))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def test_as_json(self):
        report = json.loads(self.report("--json", HF_HOME="/nowhere", ACCEL_JOB_TOKEN="secret-1", NCCL_DEBUG="INFO"))
        self.assertEqual(report["processor"]["usable"], len(os.sched_getaffinity(0)))
        self.assertEqual(report["system"]["kernel"], os.uname().release)
        self.assertEqual(report["program"], os.path.realpath(launch_test.ACCEL))
        self.assertEqual(report["configuration"], {})
        self.assertEqual(report["variables"]["ACCEL_JOB_TOKEN"], "***")
        self.assertEqual(report["variables"]["NCCL_DEBUG"], "INFO")
        self.assertNotIn("secret-1", json.dumps(report))

    def test_lists_the_plugins_that_the_library_finds(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "libaccel_cuda_graphs.so").touch()
            plugins = json.loads(self.report("--json", ACCEL_PLUGIN_PATH=folder))["plugins"]
            self.assertEqual(plugins["cuda_graphs"], os.path.join(folder, "libaccel_cuda_graphs.so"))
            self.assertLessEqual(set(plugins), {"ucx", "nccl", "cuda_graphs", "http", "tokenizers"})

    # Regression: the quick start trained in float32 on processors with bf16 instructions, for it read a line that `accel env` no
    # longer had.
    def test_the_quick_start_reads_the_precision_of_this_processor(self):
        script = (pathlib.Path(__file__).resolve().parents[2] / "tools/quickstart.sh").read_text()
        choice = re.search(r"^bf16=.*?^esac$", script, re.MULTILINE | re.DOTALL)[0]
        result = subprocess.run(["sh", "-euc", f'accel=$1\n{choice}\necho "$precision"', "sh", launch_test.ACCEL], capture_output=True, text=True,
                                timeout=60, check=True, env=clean_environment())
        instructions = json.loads(self.report("--json"))["processor"]["bf16"]
        expected = "no" if instructions.startswith("none") else "bf16"
        self.assertEqual(result.stdout.splitlines()[-1], expected)
        flags = pathlib.Path("/proc/cpuinfo").read_text()
        self.assertEqual(expected, "bf16" if re.search(r"\b(avx512_bf16|amx_bf16|bf16)\b", flags) else "no")

    def test_as_lines_with_a_configuration(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "job.yaml")
            path.write_text("distributed_type: MULTI_CPU\nnum_processes: 2\n")
            self.assertRegex(self.report("--config_file", str(path)), r"configuration values +\{.*MULTI_CPU.*\}\n")
            path.write_text("distributed_type: 7\n")
            self.assertRegex(self.report("--config_file", str(path)), r"configuration error +.*distributed_type")

    def test_a_python_that_hangs_does_not_hang_it(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "python3")
            program.write_text("#!/bin/sh\nexec sleep 100\n")
            program.chmod(0o755)
            begin = time.monotonic()
            self.assertIn("python                      none found\n", self.report(PATH=f"{folder}:/usr/bin:/bin"))
            self.assertLess(time.monotonic() - begin, 30)


class Logs(LaunchTest):
    """Where the output of ranks is, by --log-dir, --tee, --redirects and --prefix."""

    SCRIPT = 'echo "out $RANK"; echo "error $RANK" >&2'

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name, "a", "logs")

    def launch_logged(self, *options, script=SCRIPT):
        return launch("--num-processes", "2", "--log-dir", str(self.folder), *options, "--", "sh", "-c", script)

    def log(self, rank):
        return (self.folder / f"rank_{rank}.log").read_text()

    def test_each_rank_has_a_file_of_its_own_for_the_user_alone(self):
        result = self.launch_logged()
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "out 0\n", "error 0\n"))
        for rank in range(2):
            self.assertEqual(sorted(self.log(rank).splitlines()), [f"error {rank}", f"out {rank}"])
            self.assertEqual((self.folder / f"rank_{rank}.log").stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.folder.stat().st_mode & 0o777, 0o700)
        self.launch_logged()
        self.assertEqual(len(self.log(1).splitlines()), 4)

    def test_attempts_are_told_apart_in_one_file(self):
        result = self.launch_logged("--max-restarts", "1", script='echo "$ACCEL_RESTART_COUNT"; exit $((RANK * 3))')
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertEqual(self.log(1), "0\naccel launch: this is attempt 2\n1\n")

    def test_all_ranks_are_shown_by_whole_lines(self):
        script = 'for i in 1 2 3; do printf "a$i "; sleep 0.01; printf "b\n"; done; printf end; printf fault >&2'
        result = launch("--num-processes", "3", "--prefix", "--", "sh", "-c", script)
        self.assertEqual(result.returncode, 0)
        for rank in range(3):
            mine = [line for line in result.stdout.splitlines() if line.startswith(f"[rank {rank}] ")]
            self.assertEqual(mine, [f"[rank {rank}] {text}" for text in ("a1 b", "a2 b", "a3 b", "end")])
        self.assertEqual(sorted(result.stderr.splitlines()), [f"[rank {rank}] fault" for rank in range(3)])
        named = launch("--prefix", "--role", "trainer", "echo", "x")
        self.assertEqual(named.stdout, "[trainer 0] x\n")

    def test_streams_are_chosen_by_the_numbers_of_torchrun(self):
        result = launch("--num-processes", "3", "--tee", "1:1,2:2", "--redirects", "0:3", "--", "sh", "-c", self.SCRIPT)
        self.assertEqual((result.stdout, result.stderr), ("out 1\n", "error 2\n"))
        result = self.launch_logged("-t", "3", "--redirects", "2")
        self.assertEqual((sorted(result.stdout.splitlines()), result.stderr), (["out 0", "out 1"], ""))
        self.assertIn("error 1", self.log(1))
        for wrong in ("4", "x", "0:", "1:9", "-1"):
            refused = launch("--tee=" + wrong, "true")
            self.assertEqual(refused.returncode, 2, wrong)
            self.assertIn(f"--tee is '{wrong}'; expected 0 for none", refused.stderr)

    def test_a_folder_that_cannot_be_made_is_an_error_before_anything_starts(self):
        self.folder.parent.mkdir(parents=True)
        self.folder.write_text("")
        result = self.launch_logged()
        self.assertEqual((result.returncode, result.stdout), (126, ""))
        self.assertIn("cannot make the folder", result.stderr)

    def test_the_report_of_a_failure_names_the_log(self):
        result = self.launch_logged(script='if [ $RANK = 1 ]; then echo no; exit 3; fi; exec sleep 60')
        self.assertEqual(result.returncode, 3)
        self.assertIn(f"accel launch: all that it wrote is in {self.folder}/rank_1.log\n", result.stderr)
        self.assertIn("the last lines of rank 1:\n  no\n", result.stderr)


class Readers(LaunchTest):
    """Those who read what the launcher shows."""

    def start_reading(self, *options, script):
        return subprocess.Popen([launch_test.ACCEL, "launch", *options, "--", "sh", "-c", script], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=clean_environment())

    def test_one_who_stops_reading_ends_neither_launcher_nor_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            job = self.start_reading("--num-processes=2", "--prefix",
                                     script=f'seq 1000; sleep 0.2; seq 200000; echo done > {folder}/$RANK')
            self.assertTrue(job.stdout.read(1))
            job.stdout.close()
            job.stderr.close()
            self.assertEqual(job.wait(30), 0)
            self.assertEqual(sorted(os.listdir(folder)), ["0", "1"])

    def test_one_who_does_not_read_does_not_hide_a_failure(self):
        job = self.start_reading("--num-processes=2", "--tee=3",
                                 script='if [ $RANK = 0 ]; then exec yes; fi; sleep 0.3; exit 5')
        begin = time.monotonic()
        self.assertEqual(job.wait(30), 5)
        self.assertLess(time.monotonic() - begin, GONE_WITHIN)
        job.communicate()

    def test_a_gigabyte_passes_in_bounded_memory(self):
        size = 1 << (30 if os.environ.get("ACCEL_LONG_TESTS") else 27)
        script = f'if [ $RANK = 1 ]; then head -c {size} /dev/zero | tr "\\0" "\\n"; fi; grep VmHWM /proc/$PPID/status >&2'
        job = self.start_reading("--num-processes=2", "--tee=1", script=script)
        count = 0
        while block := job.stdout.read(1 << 20):
            count += len(block)
        errors = job.stderr.read().decode()
        job.stderr.close()
        self.assertEqual((job.wait(30), count), (0, size))
        self.assertLess(int(re.search(r"VmHWM:\s+(\d+) kB", errors).group(1)), 30_000)


if __name__ == "__main__":
    launch_test.ACCEL = os.path.abspath(sys.argv.pop(1))
    unittest.main()
