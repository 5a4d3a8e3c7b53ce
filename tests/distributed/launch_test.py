#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The launcher with real processes: exit statuses, output, failing and killed ranks, and that nothing stays behind.

usage: launch_test.py PATH_OF_ACCEL [unittest argument ...]
"""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from run_ranks import free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
ACCEL = ""
GONE_WITHIN = 10.0  # seconds, after a failure, also on a busy machine
RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                  "ACCEL_JOB_TOKEN")
OPENMP_VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def clean_environment(**changes):
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("ACCELERATE_") and name not in RANK_VARIABLES + OPENMP_VARIABLES}
    return {**kept, **changes}


def launch(*arguments, environment=None, **options):
    return subprocess.run([ACCEL, "launch", *arguments], capture_output=True, text=True, timeout=30, check=False,
                          env=environment or clean_environment(), **options)


def without_time(errors):
    """A report of a failure without seconds and memory, which differ."""
    return re.sub(r"accel launch: it ran for \d+\.\d\d s( and had up to \d+ MB of memory)?.*\n", "", errors)


def is_alive(process):
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        status = pathlib.Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rsplit(")", 1)[1].split()[0] not in "ZX"


def processes_with(command):
    """The numbers of the processes with this command line."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes() == b"".join(word.encode() + b"\0" for word in command):
                found.append(int(folder.name))
        except OSError:  # it has just ended
            pass
    return found


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return condition()


class Job:
    """A launcher in the background whose ranks write their process numbers into files."""

    def __init__(self, ranks, script, **options):
        self.folder = tempfile.TemporaryDirectory()
        prologue = 'echo $$ > "$FOLDER/new.$RANK"; mv "$FOLDER/new.$RANK" "$FOLDER/rank.$RANK"; '
        self.ranks = ranks
        self.launcher = subprocess.Popen(
            [ACCEL, "launch", "--num-processes", str(ranks), "--", "sh", "-c", prologue + script], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment(FOLDER=self.folder.name), **options)

    def number_in(self, name):
        """The process number that a file holds, once it is there."""
        file = pathlib.Path(self.folder.name, name)
        assert wait_until(file.exists, 10), f"{name} was not written"
        return int(file.read_text())

    def processes(self):
        return [self.number_in(f"rank.{rank}") for rank in range(self.ranks)]

    def finish(self):
        """(exit status, stdout, stderr)"""
        output, errors = self.launcher.communicate(timeout=30)
        return self.launcher.returncode, output, errors

    def close(self):
        if self.launcher.poll() is None:
            self.launcher.kill()
        self.launcher.communicate()
        self.folder.cleanup()


class LaunchTest(unittest.TestCase):
    def start(self, *arguments, **options):
        job = Job(*arguments, **options)
        self.addCleanup(job.close)
        return job

    def start_family(self, prologue=""):
        """A job of two ranks that each have a child; returns it and the process numbers, those of the ranks first."""
        job = self.start(2, prologue + 'sleep 60 & echo $! > "$FOLDER/new.c$RANK"; mv "$FOLDER/new.c$RANK"'
                            ' "$FOLDER/child.$RANK"; while true; do wait; done')
        return job, job.processes() + [job.number_in(f"child.{rank}") for rank in range(2)]

    def assert_gone(self, processes, seconds=GONE_WITHIN):
        gone = wait_until(lambda: not any(map(is_alive, processes)), seconds)
        self.assertTrue(gone, f"still running: {[process for process in processes if is_alive(process)]}")


class Environment(LaunchTest):
    def variables_of_each_rank(self, *options, environment=None):
        script = "env > {}/$RANK"
        with tempfile.TemporaryDirectory() as folder:
            result = launch(*options, "--", "sh", "-c", script.format(folder), environment=environment)
            self.assertEqual(result.returncode, 0, result.stderr)
            found = {}
            for file in pathlib.Path(folder).iterdir():
                lines = [line.partition("=") for line in file.read_text().splitlines()]
                found[int(file.name)] = {name: value for name, _, value in lines}
            return found

    def test_each_rank_learns_its_place(self):
        ranks = self.variables_of_each_rank("--num-processes", "3")
        self.assertEqual(sorted(ranks), [0, 1, 2])
        for rank, variables in ranks.items():
            self.assertEqual(variables["RANK"], str(rank))
            self.assertEqual(variables["LOCAL_RANK"], str(rank))
            self.assertEqual(variables["WORLD_SIZE"], "3")
            self.assertEqual(variables["LOCAL_WORLD_SIZE"], "3")
            self.assertEqual(variables["MASTER_ADDR"], "127.0.0.1")
        self.assertEqual(len({variables["MASTER_PORT"] for variables in ranks.values()}), 1)

    def test_the_number_of_processes_counts_on_the_cpu(self):
        ranks = self.variables_of_each_rank("--cpu", "--num_processes", "2")
        self.assertEqual({rank: variables["WORLD_SIZE"] for rank, variables in ranks.items()}, {0: "2", 1: "2"})

    # Regression: the launcher's port could be given to another program before rank 0 listened at it.
    def test_the_port_is_free_and_given_to_nobody_else(self):
        port = int(self.variables_of_each_rank()[0]["MASTER_PORT"])
        self.assertLess(port, int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]))
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))

    def test_the_ranks_of_a_job_share_a_token_of_their_own(self):
        jobs = [self.variables_of_each_rank("--num-processes", "2") for _ in range(2)]
        tokens = [{variables["ACCEL_JOB_TOKEN"] for variables in ranks.values()} for ranks in jobs]
        self.assertEqual([len(token) for token in tokens], [1, 1])
        self.assertNotEqual(tokens[0], tokens[1])

    def test_stale_variables_are_replaced_and_others_kept(self):
        stale = clean_environment(RANK="7", WORLD_SIZE="9", OTHER="kept")
        variables = self.variables_of_each_rank(environment=stale)[0]
        self.assertEqual((variables["RANK"], variables["WORLD_SIZE"], variables["OTHER"]), ("0", "1", "kept"))

    def test_threads_are_shared_out_unless_set(self):
        processors = len(os.sched_getaffinity(0))
        self.assertEqual(self.variables_of_each_rank()[0]["OMP_NUM_THREADS"], str(processors))
        many = self.variables_of_each_rank("--num-processes", str(processors + 1))
        self.assertEqual(many[0]["OMP_NUM_THREADS"], "1")
        by_user = clean_environment(OMP_NUM_THREADS="5")
        self.assertEqual(self.variables_of_each_rank(environment=by_user)[0]["OMP_NUM_THREADS"], "5")
        by_option = self.variables_of_each_rank("--num-cpu-threads-per-process", "3", environment=by_user)
        self.assertEqual(by_option[0]["OMP_NUM_THREADS"], "3")

    def test_threads_of_crowded_processors_do_not_spin(self):
        crowded = ("--num-cpu-threads-per-process", str(len(os.sched_getaffinity(0)) + 1))
        self.assertNotIn("OMP_WAIT_POLICY", self.variables_of_each_rank()[0])
        self.assertEqual(self.variables_of_each_rank(*crowded)[0]["OMP_WAIT_POLICY"], "passive")
        by_user = clean_environment(OMP_WAIT_POLICY="active")
        self.assertEqual(self.variables_of_each_rank(*crowded, environment=by_user)[0]["OMP_WAIT_POLICY"], "active")

    def test_options_become_variables(self):
        variables = self.variables_of_each_rank(
            "--mixed_precision=bf16", "--cpu", "--debug", "--gradient-accumulation-steps", "4")[0]
        self.assertEqual(variables["ACCELERATE_MIXED_PRECISION"], "bf16")
        self.assertEqual(variables["ACCELERATE_USE_CPU"], "True")
        self.assertEqual(variables["ACCELERATE_DEBUG_MODE"], "true")
        self.assertEqual(variables["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"], "4")

    def test_each_setting_of_a_state_that_has_a_variable_has_an_option(self):
        header = (ROOT / "include/accel/state.h").read_text()
        struct = re.search(r"struct accel_state_options \{(.*?)\n\}", header, re.DOTALL).group(1)
        fields = re.findall(r"(\w+);\s*/\*((?:(?!\*/).)*?)\*/", struct, re.DOTALL)
        variables = {name: re.search(r"Variable[\s*]+(\w+)\.", comment) for name, comment in fields}
        variables = {name: found.group(1) for name, found in variables.items() if found}
        self.assertLessEqual({"cpu", "mixed_precision", "main_process_port", "cpu_memory_kept"}, set(variables))
        values = {"mixed_precision": "fp16", "main_process_ip": "10.0.0.1", "cpu": "yes", "debug": "yes",
                  "cpu_kernels": "onednn", "cpu_memory": "cached", "cpu_affinity": "yes", "embedded": "yes", "torch_device": "cpu",
                  "main_process_port": str(free_port())}
        words = {"cpu": "True", "debug": "true", "embedded": "true", "cpu_affinity": "1"}  # as Accelerate's launcher writes yes
        for name, variable in variables.items():
            value = values.get(name, "40000")
            for option in (name, name.replace("_", "-")):
                with self.subTest(option=option):
                    self.assertEqual(self.variables_of_each_rank(f"--{option}={value}")[0][variable],
                                     words.get(name, value))

    def test_an_option_wins_over_its_variable_and_the_last_one_over_others(self):
        by_user = clean_environment(ACCELERATE_MIXED_PRECISION="fp16", ACCELERATE_USE_CPU="true")
        variables = self.variables_of_each_rank(
            "--mixed-precision", "bf16", "--mixed_precision=no", "--cpu", "--cpu=no", environment=by_user)[0]
        self.assertEqual((variables["ACCELERATE_MIXED_PRECISION"], variables["ACCELERATE_USE_CPU"]), ("no", "False"))
        self.assertEqual(len(self.variables_of_each_rank("--num-processes=3", "--num_processes", "2")), 2)

    def test_the_address_of_rank_0_is_not_taken_from_the_environment(self):
        by_user = clean_environment(MASTER_ADDR="10.0.0.7", MASTER_PORT="1")
        variables = self.variables_of_each_rank(environment=by_user)[0]
        self.assertEqual(variables["MASTER_ADDR"], "127.0.0.1")
        self.assertNotEqual(variables["MASTER_PORT"], "1")

    def test_the_environment_holds_where_no_option_is_given(self):
        by_user = clean_environment(ACCELERATE_MIXED_PRECISION="fp16")
        variables = self.variables_of_each_rank(environment=by_user)[0]
        self.assertEqual(variables["ACCELERATE_MIXED_PRECISION"], "fp16")
        self.assertNotIn("ACCELERATE_USE_CPU", variables)

    def test_programs_start_with_the_signal_mask_of_the_user(self):
        result = launch("sh", "-c", "grep -E 'SigBlk|SigIgn' /proc/self/status")
        expected = subprocess.run(["sh", "-c", "grep -E 'SigBlk|SigIgn' /proc/self/status"], capture_output=True,
                                  text=True, check=True)
        self.assertEqual(result.stdout, expected.stdout)


class Output(LaunchTest):
    def test_rank_0_is_untouched_and_the_others_are_silent(self):
        result = launch("--num-processes", "2", "sh", "-c", 'printf "a\\tb $RANK"; printf "e$RANK" >&2')
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "a\tb 0", "e0"))

    def test_arguments_reach_the_program_as_they_are(self):
        result = launch("--num-processes", "1", "printf", "%s|", "--num_processes", "a b", "", "--", "-x")
        self.assertEqual(result.stdout, "--num_processes|a b||--|-x|")

    def test_options_behind_the_program_are_its_own(self):
        for before in ([], ["--"], ["--cpu"], ["--cpu", "--"]):
            with self.subTest(before=before):
                arguments = ["--help", "--num-processes=", "--cpu", "--", "env", "--", "--version", "++"]
                result = launch(*before, "printf", "%s|", *arguments)
                self.assertEqual((result.returncode, result.stdout), (0, "|".join(arguments) + "|"), result.stderr)

    def test_programs_may_be_called_like_commands(self):
        for before in ([], ["--"]):
            self.assertEqual(launch(*before, "env", "-i", "A=1", "env").stdout, "A=1\n")

    def test_rank_0_reads_the_input(self):
        self.assertEqual(launch("--num-processes", "2", "cat", input="hello").stdout, "hello")

    def test_a_rank_that_writes_much_is_not_held_up(self):
        script = "if [ $RANK = 1 ]; then head -c 5000000 /dev/zero | tr '\\0' '\\n'; seq 100000; exit 4; fi"
        result = launch("--num-processes", "2", "sh", "-c", script)
        self.assertEqual(result.returncode, 4)
        self.assertEqual(result.stderr.splitlines()[-20:], [f"  {number}" for number in range(99981, 100001)])


class Failure(LaunchTest):
    def test_the_status_of_the_first_failing_rank_and_its_last_lines(self):
        script = ('if [ $RANK = 1 ]; then while [ ! -f "$FOLDER/rank.0" ]; do sleep 0.01; done; seq 30;'
                  ' echo broken >&2; exit 3; fi; sleep 60')
        job = self.start(2, script)
        processes = job.processes()
        status, output, errors = job.finish()
        self.assertEqual((status, output), (3, ""))
        expected = ["accel launch: rank 1 failed: exit status 3", "the last lines of rank 1:"]
        expected += [f"  {number}" for number in range(12, 31)] + ["  broken"]
        self.assertEqual(without_time(errors).splitlines(), expected)
        self.assert_gone(processes, 0)

    def test_rank_0_fails(self):
        result = launch("--num-processes", "2", "sh", "-c", "if [ $RANK = 0 ]; then echo no >&2; exit 9; fi; sleep 60")
        self.assertEqual((result.returncode, without_time(result.stderr)),
                         (9, "no\naccel launch: rank 0 failed: exit status 9\n"))

    def test_a_killed_rank_is_explained(self):
        job = self.start(2, "exec sleep 60")
        processes = job.processes()
        os.kill(processes[1], signal.SIGKILL)
        status, _, errors = job.finish()
        self.assertEqual(status, 128 + signal.SIGKILL)
        self.assertEqual(without_time(errors),
                         "accel launch: rank 1 failed: SIGKILL: killed, often by the out-of-memory killer\n")
        self.assertRegex(errors, r"it ran for \d+\.\d\d s and had up to \d+ MB of memory")
        self.assert_gone(processes, 0)

    def test_a_crash_is_explained(self):
        result = launch("sh", "-c", "kill -SEGV $$")
        self.assertEqual(result.returncode, 128 + signal.SIGSEGV)
        self.assertIn("SIGSEGV: access to memory that is not the program's", result.stderr)

    def test_ranks_that_ignore_being_asked_are_killed(self):
        job = self.start(3, "trap '' TERM; if [ $RANK = 2 ]; then while [ ! -f \"$FOLDER/go\" ]; do sleep 0.01; done;"
                            " exit 5; fi; while true; do sleep 60; done")
        processes = job.processes()
        begin = time.monotonic()
        pathlib.Path(job.folder.name, "go").touch()
        self.assertEqual(job.finish()[0], 5)
        self.assertLess(time.monotonic() - begin, GONE_WITHIN)
        self.assert_gone(processes, 0)

    def test_each_rank_has_a_session_of_its_own(self):
        """Linux shares the processors among sessions: in that of the launcher, ranks would share one part with all that runs there."""
        job = self.start(2, 'set -- $(cat /proc/$$/stat); echo "$6" > "$FOLDER/new.s$RANK"; mv "$FOLDER/new.s$RANK" "$FOLDER/session.$RANK";'
                            " exec sleep 60")
        processes = job.processes()
        self.assertEqual([job.number_in(f"session.{rank}") for rank in range(2)], processes)

    def test_a_stopped_rank_is_ended_too(self):
        job = self.start(2, "exec sleep 60")
        processes = job.processes()
        os.kill(processes[0], signal.SIGSTOP)
        begin = time.monotonic()
        os.kill(processes[1], signal.SIGTERM)
        self.assertEqual(job.finish()[0], 128 + signal.SIGTERM)
        self.assertLess(time.monotonic() - begin, GONE_WITHIN)
        self.assert_gone(processes, 0)

    def test_what_a_rank_started_ends_with_it(self):
        job, processes = self.start_family()
        os.kill(processes[1], signal.SIGKILL)
        self.assertEqual(job.finish()[0], 128 + signal.SIGKILL)
        self.assert_gone(processes)


class Strays(LaunchTest):
    """Children of ranks that leave the group and the session of the rank."""

    DAEMON = "setsid sh -c 'echo $$ > \"$FOLDER/new.d$RANK\"; mv \"$FOLDER/new.d$RANK\" \"$FOLDER/daemon.$RANK\"; exec sleep 60' & "

    def start_daemons(self, script):
        job = self.start(2, self.DAEMON + script)
        return job, job.processes() + [job.number_in(f"daemon.{rank}") for rank in range(2)]

    def test_they_end_with_the_job(self):
        job, processes = self.start_daemons('while [ ! -f "$FOLDER/go" ]; do sleep 0.01; done')
        pathlib.Path(job.folder.name, "go").touch()
        self.assertEqual(job.finish()[0], 0)
        self.assert_gone(processes, 0.5)

    def test_they_end_with_a_killed_launcher(self):
        job, processes = self.start_daemons("exec sleep 60")
        job.launcher.kill()
        self.assert_gone(processes)

    def test_a_rank_that_ends_behind_a_fork_is_over(self):
        result = launch("--num-processes=2", "--", "sh", "-c", "(sleep 60 &) ; exit 0")
        self.assertEqual(result.returncode, 0)


class LauncherIsKilled(LaunchTest):
    def test_by_sigkill_nothing_stays(self):
        job, processes = self.start_family("trap '' TERM; ")
        job.launcher.kill()
        self.assert_gone(processes)

    def test_by_sigkill_while_it_starts_nothing_stays(self):
        program = ["sleep", f"60.{os.getpid()}"]  # a command line that no other process has
        script = " ".join(program) + " & " + " ".join(program)
        for delay_ms in range(20):
            launcher = subprocess.Popen([ACCEL, "launch", "--num-processes", "4", "--", "sh", "-c", script])
            time.sleep(delay_ms / 1000)
            launcher.kill()
            launcher.wait()
        self.assertTrue(wait_until(lambda: not processes_with(program), GONE_WITHIN), processes_with(program))

    def test_by_sigterm_it_tells_the_ranks_and_waits(self):
        job, processes = self.start_family()
        job.launcher.terminate()
        status, _, errors = job.finish()
        self.assertEqual((status, errors), (128 + signal.SIGTERM, "accel launch: stopped by SIGTERM\n"))
        self.assert_gone(processes)

    def test_a_rank_may_clean_up_after_an_interrupt(self):
        job = self.start(1, "trap 'echo saved; exit 0' INT; touch \"$FOLDER/ready\"; while true; do sleep 0.01; done")
        self.assertTrue(wait_until(pathlib.Path(job.folder.name, "ready").exists, 10))
        job.launcher.send_signal(signal.SIGINT)
        self.assertEqual(job.finish(), (128 + signal.SIGINT, "saved\n", "accel launch: stopped by SIGINT\n"))

    def test_a_second_signal_ends_at_once(self):
        for signal_number, pause in ((signal.SIGINT, 0.1), (signal.SIGTERM, 1.1)):
            job, processes = self.start_family("trap '' INT TERM; ")
            job.launcher.send_signal(signal_number)
            time.sleep(pause)
            self.assertIsNone(job.launcher.poll())
            job.launcher.send_signal(signal_number)
            self.assertEqual(job.finish()[0], 128 + signal_number)
            self.assert_gone(processes)

    def test_the_same_signal_twice_at_once_is_one(self):
        job = self.start(1, "trap 'sleep 0.5; echo saved; exit 75' TERM; touch \"$FOLDER/ready\"; while true; do sleep 0.01; done")
        self.assertTrue(wait_until(pathlib.Path(job.folder.name, "ready").exists, 10))
        for _ in range(3):
            job.launcher.terminate()
        status, output, errors = job.finish()
        # A shell may say that its own child was terminated.
        self.assertEqual((status, output, errors.splitlines()[-1]), (75, "saved\n", "accel launch: stopped by SIGTERM"))

    def test_ignored_signals_stay_ignored(self):
        job = self.start(1, "while [ ! -f \"$FOLDER/go\" ]; do sleep 0.01; done",
                         preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        job.processes()
        job.launcher.send_signal(signal.SIGHUP)
        time.sleep(0.05)
        pathlib.Path(job.folder.name, "go").touch()
        self.assertEqual(job.finish(), (0, "", ""))


class Python(LaunchTest):
    """Scripts and modules of Python, as Accelerate starts them."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.script = pathlib.Path(folder.name, "train.py")
        # For Python the second line is a text.
        self.script.write_text('#!/bin/sh\n"exec" "echo" "shell"\nimport os, sys\nprint(os.environ["RANK"], *sys.argv[1:])\n')

    def test_a_script_needs_no_name_of_an_interpreter(self):
        for options in (["--num_processes", "2"], ["--mixed_precision=bf16"], ["--multi_gpu", "--num-processes=2", "--"]):
            result = launch(*options, str(self.script), "--lr", "1")
            self.assertEqual((result.returncode, result.stdout), (0, "0 --lr 1\n"), result.stderr)

    def test_a_module(self):
        environment = clean_environment(PYTHONPATH=str(self.script.parent))
        for option in ("-m", "--module"):
            result = launch(option, "train", "x", environment=environment)
            self.assertEqual((result.returncode, result.stdout), (0, "0 x\n"), result.stderr)

    def test_a_script_that_is_a_program(self):
        self.script.chmod(0o755)
        for option in ("--no_python", "--no-python"):
            result = launch(option, str(self.script))
            self.assertEqual((result.returncode, result.stdout), (0, "shell\n"), result.stderr)
        result = launch("--no-python", "--module", "train")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--module and --no-python are both given; expected one of them", result.stderr)


class Usage(LaunchTest):
    def assert_refused(self, arguments, status, message):
        result = subprocess.run([ACCEL, *arguments], capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (status, "", f"accel: {message}\n"))

    def test_programs_that_cannot_start(self):
        not_found = "'no-such-program' was not found; expected the path of a program, or a name that is in PATH"
        self.assert_refused(["launch", "--num-processes=4", "no-such-program"], 127, not_found)
        for before in ([], ["--"], ["--cpu"]):
            self.assert_refused(["launch", *before, ""], 127, not_found.replace("no-such-program", ""))
        self.assert_refused(["launch", "--", "--cpu"], 127, not_found.replace("no-such-program", "--cpu"))
        self.assert_refused(["launch", "/"], 126, "'/' cannot be started: Permission denied")

    def test_wrong_arguments(self):
        for arguments, message in (
            ([], "no command is given; expected launch, config, env, test, checkpoint, "
             "merge-weights, estimate-memory, run, embed, serve, compile, profile, report, to-fsdp2, tpu-config, completions, --version or --help"),
            (["start"], "'start' is not a command; expected launch, config, env, test, checkpoint, "
             "merge-weights, estimate-memory, run, embed, serve, compile, profile, report, to-fsdp2, tpu-config, completions, --version or --help"),
            (["--versoin"], "'--versoin' is not an option; the nearest is --version; see accel --help"),
            (["env", "launch"], "'launch' is given to accel env; expected no arguments"),
            (["env", "--all"], "'--all' is not an option; see accel env --help"),
            (["launch"], "no program is given; expected accel launch [OPTION ...] PROGRAM"),
            (["launch", "--frobnicate", "true"], "'--frobnicate' is not an option; see accel launch --help"),
            (["launch", "--num_proceses=2", "true"],
             "'--num_proceses' is not an option; the nearest is --num-processes; see accel launch --help"),
            (["launch", "--cpu", "--mixed-percision", "no", "true"],
             "'--mixed-percision' is not an option; the nearest is --mixed-precision; see accel launch --help"),
            (["launch", "-n", "2", "true"], "'-n' is not an option; see accel launch --help"),
            (["launch", "--num-processes"], "--num-processes has no value; see accel launch --help"),
            (["launch", "--cpu", "--num_processes=", "2"], "--num_processes has no value; see accel launch --help"),
            (["launch", "--cpu=", "true"], "--cpu has no value; see accel launch --help"),
            (["launch", "--main-process-ip", "", "true"], "--main-process-ip is ''; expected a text"),
            (["launch", "--num-processes", "--cpu", "true"],
             "--num-processes is '--cpu'; expected an integer from 1 to 65536"),
            (["launch", "--num-processes", "-1", "true"], "--num-processes is '-1'; expected an integer from 1 to 65536"),
            (["launch", "--cpu=maybe", "true"], "--cpu is 'maybe'; expected yes or no"),
            (["launch", "--gradient_accumulation_steps=0", "true"],
             "--gradient-accumulation-steps is '0'; expected an integer at least 1"),
            (["launch", "--cpu-memory-kept=99999999999999999999", "true"],
             "--cpu-memory-kept is '99999999999999999999'; expected an integer at least 0"),
            (["launch", "--main-process-port=65536", "true"],
             "--main-process-port is '65536'; expected an integer from 0 to 65535"),
            (["launch", "--num-processes=0", "true"], "--num-processes is '0'; expected an integer from 1 to 65536"),
            (["launch", "--num-processes=2x", "true"], "--num-processes is '2x'; expected an integer from 1 to 65536"),
            (["launch", "--mixed-precision=half", "true"],
             "--mixed-precision is 'half'; expected one of no, fp16, bf16, fp8"),
            (["launch", "--num-processes=3", "--num-machines=2", "true"],
             "--num-processes is 3; expected a multiple of --num-machines, which is 2"),
            (["launch", "--json", "true"], "--json is given; expected --dry-run beside it"),
            (["launch", "--cpu", "--use_fsdp", "true"],
             "--cpu and --use-fsdp are both given; expected one of --cpu, --multi-gpu, --tpu, --use-deepspeed and "
             "--use-fsdp"),
            (["launch", "--fp8_amax_history_len", "0", "true"], "--fp8-amax-history-len is '0'; expected an integer from 1 to 65536"),
            (["launch", "--fsdp_offload_params", "x", "true"], "--fsdp-offload-params is 'x'; expected yes or no"),
            (["launch", "--config_file", "missing.yaml", "true"], "cannot open 'missing.yaml': No such file or directory"),
            (["launch", "--config_file", "/", "true"], "'/' is not a regular file"),
            (["launch", "--hostfile", "missing", "true"], "cannot open 'missing': No such file or directory"),
            (["launch", "--machine-rank=1", "true"],
             "--machine-rank is 1; expected less than --num-machines, which is 1"),
        ):
            with self.subTest(arguments=arguments):
                self.assert_refused(arguments, 2, message)

    # Regression: `accel launch` started ranks with a file or a variable that they refuse.
    def test_values_that_the_ranks_would_refuse(self):
        def refused(arguments, message, **variables):
            result = subprocess.run([ACCEL, "launch", *arguments, "true"], capture_output=True, text=True, timeout=30, check=False,
                                    env={**os.environ, **variables})
            self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
            self.assertIn(message, result.stderr)

        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "job.yaml")
            for text, message in (("gradient_accumulation_steps: 0\n", "gradient_accumulation_steps is '0' (from {}); expected"),
                                  ("adam: {lr: -1}\n", "lr is '-1' (from {}); expected"),
                                  ("project: {total_limit: 4}\n", "{}: the options 'project' change a state that is there")):
                with self.subTest(text=text):
                    path.write_text(text)
                    refused([], message.format(f"{path}:1"), ACCELERATE_CONFIG_FILE=str(path))
        refused([], "cpu_kernels is 'quick' (from ACCEL_CPU_KERNELS); expected one of", ACCEL_CPU_KERNELS="quick")

    def shown(self, *arguments):
        return subprocess.run([ACCEL, *arguments], capture_output=True, text=True, timeout=30, check=True).stdout

    def test_information(self):
        for arguments, beginning in ((["--version"], "accel "), (["--help"], "usage: accel COMMAND\n"),
                                     (["-h"], "usage: accel "), (["env"], "accel "),
                                     (["env", "--help"], "usage: accel env [OPTION ...]\n"), (["launch", "-h"], "usage: accel launch "),
                                     (["launch", "--help"], "usage: accel launch [OPTION ...] [--] PROGRAM ")):
            with self.subTest(arguments=arguments):
                self.assertTrue(self.shown(*arguments).startswith(beginning), self.shown(*arguments))

    # Regression: `accel env` said that there is no LibTorch where the library was linked with one.
    def test_the_libtorch_of_the_linker(self):
        """accel env names the LibTorch that the library beside the program would be loaded with."""
        def folder(**variables):
            said = subprocess.run([ACCEL, "env"], capture_output=True, text=True, timeout=60, check=True, env={**os.environ, **variables}).stdout
            return pathlib.Path(re.search(r"^libtorch folder +(.+)$", said, re.MULTILINE).group(1))

        library = folder() / "lib" / "libtorch_cpu.so"
        self.assertTrue(library.exists(), library)
        with tempfile.TemporaryDirectory() as other:  # links, with all that the library needs
            libraries = pathlib.Path(other, "torch", "lib")
            libraries.mkdir(parents=True)
            for file in library.parent.iterdir():
                (libraries / file.name).symlink_to(file)
            for needed in filter(pathlib.Path.is_dir, (library.parents[2] / "nvidia", library.parents[2] / "torch.libs")):
                pathlib.Path(other, needed.name).symlink_to(needed)
            self.assertEqual(folder(LD_LIBRARY_PATH=str(libraries)), libraries.parent)

    def test_the_help_says_values_variables_and_defaults(self):
        text = self.shown("launch", "--help")
        self.assertLessEqual(max(map(len, text.splitlines())), 118)
        words = " ".join(text.split())
        for row in ("--num-processes N Number of ranks, on all machines together. Default: the number of GPUs, else 1 --",
                    "--cpu[=no] No accelerator. Sets ACCELERATE_USE_CPU. Default no --",
                    "--mixed-precision no|fp16|bf16|fp8 The precision of the forward passes of prepared models. "
                    "Sets ACCELERATE_MIXED_PRECISION. Default no --",
                    "Sets MASTER_PORT. Default: a free one, with several machines 29500 ",
                    "Sets ACCEL_CPU_MEMORY_KEPT. Default: a fourth of the memory of the host "):
            self.assertIn(row, words)

    def test_it_loads_neither_libtorch_nor_the_engine(self):
        maps = launch("sh", "-c", "cat /proc/$PPID/maps").stdout
        # Names of files only: a folder may be called as it likes.
        loaded = {line.rsplit("/", 1)[-1] for line in maps.splitlines() if "/" in line}
        self.assertTrue([name for name in loaded if name.startswith("libc.so")], loaded)
        self.assertFalse([name for name in loaded if "torch" in name or name.startswith("libaccel")], loaded)


if __name__ == "__main__":
    ACCEL = os.path.abspath(sys.argv.pop(1))
    unittest.main()
