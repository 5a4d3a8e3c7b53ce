#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The commands of the program `accel` around configurations: questions on a terminal, files, conversions, completions, pages.

usage: config_command_test.py PATH_OF_ACCEL "INSTALLED_PAGE ..." [unittest argument ...]
"""

import json
import os
import pathlib
import pty
import select
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

ACCEL = PAGES = ""
FIXTURES = pathlib.Path(os.environ.get("ACCEL_PARITY_DIR",
                                       pathlib.Path(__file__).resolve().parents[1] / "parity/fixtures")) / "configs"
SECONDS = 30


class CommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="accel-config-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("ACCELERATE_", "FSDP_", "HF_", "XDG_"))}
        self.environment = {**kept, "HF_HOME": str(self.folder / "hub"), "CUDA_VISIBLE_DEVICES": ""}
        self.default_file = self.folder / "hub/accelerate/default_config.yaml"

    def accel(self, *arguments, **variables):
        return subprocess.run([ACCEL, *map(str, arguments)], capture_output=True, text=True, timeout=SECONDS, check=False,
                              stdin=subprocess.DEVNULL, cwd=self.folder, env={**self.environment, **variables})

    def expect(self, status, text, *arguments, **variables):
        result = self.accel(*arguments, **variables)
        said = result.stdout + result.stderr
        self.assertEqual(result.returncode, status, said)
        self.assertIn(text, said)
        if status != 0:
            self.assertEqual(result.stderr.count("\n"), 1, said)
            self.assertTrue(result.stderr.startswith("accel: "), said)
        return result

    def write(self, name, content):
        path = self.folder / name
        path.write_text(content)
        return path

    def files(self):
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())


class Terminal:
    """A program on a terminal, whose questions are answered one after the other."""

    def __init__(self, arguments, environment, folder):
        self.process, self.master = pty.fork()
        if self.process == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever runs the tests may ignore it
            os.chdir(folder)
            try:
                os.execve(ACCEL, [ACCEL, *map(str, arguments)], environment)
            finally:
                os._exit(127)
        self.shown = self.said = ""

    def read_until(self, is_there):
        """Reads until a condition holds, or the end; returns whether it holds."""
        end = time.monotonic() + SECONDS
        while not is_there(self.shown):
            if time.monotonic() > end or not select.select([self.master], [], [], 1)[0]:
                if time.monotonic() > end:
                    raise AssertionError("no question within the time: " + self.shown)
                continue
            try:
                got = os.read(self.master, 4096)
            except OSError:  # the other end is closed
                return False
            if not got:
                return False
            self.shown += got.decode()
            self.said += got.decode()
        return True

    def answer(self, text):
        """Waits for a question, and answers it; false: there is none any more."""
        if not self.read_until(lambda shown: shown.endswith(": ")):
            return False
        self.shown = ""
        os.write(self.master, text.encode() + b"\n")
        return True

    def finish(self):
        try:
            self.read_until(lambda shown: False)
        except AssertionError:
            os.kill(self.process, signal.SIGKILL)
            raise
        finally:
            status = self.close()
        return status

    def close(self):
        os.close(self.master)
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


class Questionnaire(CommandTest):
    def ask(self, answers, *arguments):
        terminal = Terminal([*shlex.split("accel config")[1:], *arguments], self.environment, self.folder)
        for number, answer in enumerate(answers):
            self.assertTrue(terminal.answer(answer), f"there is no question for answer {number} of {answers}: {terminal.shown}")
        status = terminal.finish()
        return status, terminal.said

    def test_the_answers_of_the_reference_give_its_files(self):
        cases = json.loads((FIXTURES / "expected.json").read_text())["cases"]
        asked = [case["input"] for case in cases if isinstance(case["input"].get("questions"), list)]
        self.assertGreaterEqual(len(asked), 20)
        for given in asked:
            with self.subTest(given["file"]):
                output = self.folder / given["file"]
                answers = ["", *(answer or "" for _, answer in given["questions"])]
                status, shown = self.ask(answers, "--config-file", output)
                self.assertEqual(status, 0, shown)
                self.assertIn(f"configuration saved at {output}", shown)
                self.assertEqual(output.read_text(), (FIXTURES / given["file"]).read_text())

    def test_choices_may_be_answered_by_their_numbers_and_in_any_case(self):
        self.assertEqual(self.ask(["0", "1", "", "", "", "", "3", "BF16"])[0], 0)
        written = self.default_file.read_text()
        self.assertIn("distributed_type: MULTI_CPU\n", written)
        self.assertIn("num_processes: 3\n", written)
        self.assertIn("mixed_precision: bf16\n", written)

    def test_wrong_answers_are_asked_for_again(self):
        answers = ["moon", "this machine", "multi-cpu", "none", "0", "2", "2", "-1", "1", "", "host", "70000", "port", "28920",
                   "perhaps", "yes", "", "", "", "0", "4", "fp17", "7", "no"]
        status, shown = self.ask(answers)
        self.assertEqual(status, 0, shown)
        written = self.default_file.read_text()
        for line in ("num_machines: 2\n", "machine_rank: 1\n", "main_process_ip: host\n", "main_process_port: 28920\n",
                     "num_processes: 4\n", "mixed_precision: 'no'\n"):
            self.assertIn(line, written)

    def test_one_gpu_is_not_several(self):
        terminal = Terminal(["config"], self.environment, self.folder)
        for answer in ["", "multi-gpu", "", "", "", "", "", "", "1"]:
            self.assertTrue(terminal.answer(answer))
        self.assertTrue(terminal.read_until(lambda shown: "expected a number of at least 2" in shown))
        terminal.close()

    def test_the_end_of_the_input_and_interrupts_leave_nothing(self):
        terminal = Terminal(["config"], self.environment, self.folder)
        self.assertTrue(terminal.answer(""))
        terminal.read_until(lambda shown: shown.endswith(": "))
        os.write(terminal.master, b"\x04")
        self.assertEqual(terminal.finish(), 1)
        self.assertIn("the answers ended early; nothing was written", terminal.shown)
        terminal = Terminal(["config"], self.environment, self.folder)
        self.assertTrue(terminal.answer(""))
        os.write(terminal.master, b"\x03")
        self.assertEqual(terminal.finish(), -signal.SIGINT)
        self.assertEqual(self.files(), [])

    def test_compilation_is_asked_for(self):
        answers = ["", "", "yes", "yes", "inductor", "", "", "no"]
        status, shown = self.ask(answers)
        self.assertEqual(status, 0, shown)
        self.assertNotIn("torch.compile? That is not in this version", shown)
        self.assertNotIn("note:", shown)
        self.assertIn("dynamo_config:\n  dynamo_backend: INDUCTOR\n", self.default_file.read_text())

    # Regression: `accel config` offered what `accel launch` refuses without a word.
    def test_what_a_launch_refuses_is_said_with_its_question(self):
        cases = json.loads((FIXTURES / "expected.json").read_text())["cases"]
        asked = [case["input"] for case in cases if isinstance(case["input"].get("questions"), list)]
        refused = set()
        for given in asked:
            with self.subTest(given["file"]):
                result = self.accel("launch", "--dry-run", "--config-file", FIXTURES / given["file"], "train.py")
                if result.returncode == 0:
                    continue
                refused.add(given["file"].partition(".")[0])
                _, said = self.ask(["", *(answer or "" for _, answer in given["questions"])], "--config-file", self.folder / "job.yaml")
                self.assertRegex(said, "accel launch refuses (it|them)", result.stderr)
        self.assertEqual(refused, {"deepspeed_machines"}, "what is refused today")

    def test_nothing_is_asked_without_a_terminal(self):
        self.expect(1, f"accel config --default, which writes a configuration of this machine to {self.default_file}", "config")
        self.assertEqual(self.files(), [])

    def test_sagemaker_is_refused(self):
        status, shown = self.ask(["AWS (Amazon SageMaker)"])
        self.assertEqual(status, 2)
        self.assertIn("starts nothing on SageMaker", shown)


class Default(CommandTest):
    def test_it_is_that_of_the_reference(self):
        self.expect(0, f"configuration saved at {self.default_file}", "config", "default")
        self.assertEqual(self.default_file.read_text(), (FIXTURES / "default_cpu.json").read_text())

    def test_a_file_that_is_there_stays(self):
        path = self.write("job.yaml", "distributed_type: 'NO'\n")
        self.expect(0, "there is a configuration at " + str(path), "config", "--default", "--config_file", path)
        self.assertEqual(path.read_text(), "distributed_type: 'NO'\n")

    def test_its_precision_and_file(self):
        path = self.folder / "new/folder/job.json"
        self.expect(0, "saved", "config", "default", "--mixed_precision", "BF16", "--config_file", path)
        self.assertEqual(json.loads(path.read_text())["mixed_precision"], "bf16")
        self.expect(2, "mixed_precision is 'fp17'; expected one of no, fp16, bf16, fp8", "config", "default",
                    "--mixed_precision", "fp17", "--config_file", self.folder / "other.json")
        self.expect(2, "'more' is given to accel config default", "config", "default", "more")

    def test_places_that_cannot_be_written(self):
        self.write("file", "")
        self.expect(1, "cannot make the folder", "config", "default", "--config_file", self.folder / "file/job.yaml")
        self.expect(1, "cannot make the folder", "config", "default", HF_HOME=str(self.folder / "file"))
        self.expect(1, "cannot write '/proc/accel_config.yaml'", "config", "default", "--config_file", "/proc/accel_config.yaml")
        self.assertEqual(self.files(), ["file"])


class Update(CommandTest):
    def test_every_file_of_the_reference_stays_as_it_is_read(self):
        for fixture in sorted(FIXTURES.glob("*")):
            if fixture.name.startswith(("broken", "expected", "deepspeed_zero")) and fixture.suffix == ".json":
                continue
            if fixture.name.startswith(("broken", "legacy")) or fixture.name in (
                    "cli_processes.yaml", "one_gpu_id.yaml", "fsdp1_no_sync.yaml"):
                continue
            with self.subTest(fixture.name):
                path = self.write(fixture.name, fixture.read_text())
                self.expect(0, f"configuration updated at {path}", "config", "update", "--config_file", path)
                self.assertEqual(path.read_text(), fixture.read_text())

    def test_old_names_are_converted_and_permissions_kept(self):
        path = self.write("old.yaml", "distributed_type: MULTI_GPU\nfp16: true\nnum_processes: 2\ndynamo_backend: TVM\n")
        path.chmod(0o600)
        self.expect(0, "updated", "config", "update", "--config_file", path)
        written = path.read_text()
        self.assertIn("mixed_precision: fp16\n", written)
        self.assertNotIn("fp16: true", written)
        self.assertIn("dynamo_config:\n  dynamo_backend: TVM\n", written)
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        self.assertEqual(self.files(), ["old.yaml"])

    def test_a_link_stays_a_link(self):
        path = self.write("real.yaml", "distributed_type: 'NO'\n")
        (self.folder / "link.yaml").symlink_to(path)
        self.expect(0, "updated", "config", "update", "--config_file", self.folder / "link.yaml")
        self.assertTrue((self.folder / "link.yaml").is_symlink())
        self.assertIn("num_processes: 1\n", path.read_text())

    def test_broken_files_stay_as_they_are(self):
        for name, content, message in (
                ("unknown.yaml", "distributed_type: 'NO'\nnum_proceses: 2\n", "the nearest is 'num_processes'"),
                ("form.yaml", "distributed_type: [\n", "expected YAML or JSON"),
                ("empty.yaml", "", "is empty"),
                ("nul.json", '{"distributed_type": "NO", "gpu_ids": "\0"}', "expected YAML or JSON"),
                ("twice.yaml", "debug: true\ndebug: true\ndistributed_type: 'NO'\n", "stands twice")):
            path = self.write(name, content)
            self.expect(2, message, "config", "update", "--config_file", path)
            self.assertEqual(path.read_text(), content)
        self.expect(1, "No such file", "config", "update")
        self.expect(1, "is not a regular file", "config", "update", "--config_file", self.folder)


class Explain(CommandTest):
    def test_the_winner_and_the_losers_are_shown(self):
        path = self.write("job.yaml", "distributed_type: MULTI_CPU\nnum_processes: 3\nmixed_precision: fp16\n")
        result = self.expect(0, "", "config", "explain", "--config_file", path, ACCELERATE_MIXED_PRECISION="bf16")
        self.assertIn(f"mixed_precision = bf16 (ACCELERATE_MIXED_PRECISION), over fp16 ({path}:3)\n", result.stdout)
        self.assertIn(f"num_processes = 3 ({path}:2)\n", result.stdout)
        shown = json.loads(self.accel("config", "explain", "--config_file", path, "--json").stdout)
        self.assertEqual(shown["file"], str(path))
        self.assertIn({"name": "mixed_precision", "value": "fp16", "source": f"{path}:3", "overruled": []}, shown["settings"])

    def test_the_file_is_that_of_a_launch(self):
        self.assertIn("configuration: none\n", self.accel("config", "explain").stdout)
        self.accel("config", "default")
        self.assertIn(f"configuration: {self.default_file}\n", self.accel("config", "explain").stdout)
        self.expect(1, "No such file", "config", "explain", "--config_file", "missing.yaml")
        self.expect(2, "distributed_type", "config", "explain", "--config_file", self.write("job.yaml", "debug: true\n"))


class ToFsdp2(CommandTest):
    CONFIG = """\
distributed_type: FSDP
fsdp_config:
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_forward_prefetch: true
  fsdp_offload_params: true
  fsdp_sharding_strategy: {strategy}
  fsdp_sync_module_states: true
  fsdp_use_orig_params: true
  some_unknown_key: 5
num_processes: 2
"""

    def test_each_strategy(self):
        for strategy, reshards in (("FULL_SHARD", "true"), ("SHARD_GRAD_OP", "false"), ("HYBRID_SHARD", "true"),
                                   ("HYBRID_SHARD_ZERO2", "false"), ("NO_SHARD", "false"), ("OTHER", "OTHER")):
            for name in ("fsdp_sharding_strategy", "fsdp_reshard_after_forward"):
                path = self.write("one.yaml", self.CONFIG.format(strategy=strategy).replace("fsdp_sharding_strategy", name))
                output = self.folder / "two.yaml"
                result = self.accel("to-fsdp2", "--config_file", path, "--output_file", output, "--overwrite")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(output.read_text(), "distributed_type: FSDP\nfsdp_config:\n  fsdp_offload_params: true\n"
                                 f"  fsdp_reshard_after_forward: {reshards}\n  some_unknown_key: 5\n  fsdp_version: 2\n"
                                 "num_processes: 2\n")
                for dropped in ("backward_prefetch", "forward_prefetch", "sync_module_states", "use_orig_params"):
                    self.assertIn(f"accel: fsdp_{dropped} is left out", result.stderr)

    def test_files_of_version_2_or_without_stay(self):
        for content, note in (("fsdp_config:\n  fsdp_version: 2\n  fsdp_use_orig_params: true\n", "fsdp_version is 2"),
                              ("num_processes: 2\n", "there is no fsdp_config"), ("fsdp_config: {}\n", "there is no fsdp_config")):
            path = self.write("job.yaml", content)
            self.expect(0, note, "to-fsdp2", "--config_file", path, "--overwrite")
            self.assertEqual(path.read_text(), content)

    def test_where_it_goes(self):
        path = self.write("job.yaml", self.CONFIG.format(strategy="FULL_SHARD"))
        self.expect(1, "there is no file 'missing.yaml'", "to-fsdp2", "--config_file", "missing.yaml")
        self.expect(2, "expected --output-file FILE, or --overwrite", "to-fsdp2", "--config_file", path)
        other = self.write("other.yaml", "")
        self.expect(1, "is there already", "to-fsdp2", "--config_file", path, "--output_file", other)
        self.expect(2, "is empty", "to-fsdp2", "--config_file", other, "--overwrite")
        self.expect(2, "--config-file is missing", "to-fsdp2")
        self.assertEqual(other.read_text(), "")
        self.accel("to-fsdp2", "--config_file", path, "--overwrite")
        self.assertIn("fsdp_version: 2", path.read_text())


class TpuConfig(CommandTest):
    BASE = "Running gcloud compute tpus tpu-vm ssh test-tpu --zone us-central1-a --command cd /usr/share"
    CONFIG = """\
commands: [echo "hello world", echo "this is a second command"]
distributed_type: 'NO'
tpu_name: test-tpu
tpu_zone: us-central1-a
"""

    def test_the_command_of_the_reference_is_printed(self):
        path = self.write("job.yaml", self.CONFIG)
        commands = self.write("commands.sh", 'echo "hello world"\necho "this is a second command"')
        both = '; echo "hello world"; echo "this is a second command" --worker all\n'
        place = ("--tpu_zone", "us-central1-a", "--tpu_name", "test-tpu")
        for arguments, end in (
                (("--command", "ls", *place), "; ls --worker all\n"),
                (("--config_file", path), both),
                (("--config_file", path, "--command", "ls"), "; ls --worker all\n"),
                (("--config_file", path, "--command", "ls", "--command", 'echo "Hello World"'),
                 '; ls; echo "Hello World" --worker all\n'),
                (("--config_file", path, "--command_file", commands), both),
                (("--command_file", commands, *place), both),
                (("--config_file", path, "--install_accelerate"), "; pip install accelerate -U" + both),
                (("--config_file", path, "--install_accelerate", "--accelerate_version", "12.0.0"),
                 "; pip install accelerate==12.0.0" + both),
                (("--config_file", path, "--install_accelerate", "--accelerate_version", "dev"),
                 "; pip install git+https://github.com/huggingface/accelerate.git" + both)):
            self.assertEqual(self.accel("tpu-config", *arguments, "--debug").stdout, self.BASE + end)

    def test_nothing_is_run(self):
        self.expect(2, "tpu-config asks for TPUs; this version does not support it", "tpu-config", "--command", "ls",
                    "--tpu_zone", "a", "--tpu_name", "b")
        self.expect(2, "there is nothing to run", "tpu-config", "--debug")


class Completions(CommandTest):
    def complete(self, *words):
        script = self.accel("completions", "bash").stdout
        line = " ".join(f"'{word}'" for word in words)
        program = f"{script}\nCOMP_WORDS=({line})\nCOMP_CWORD={len(words) - 1}\n_accel\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""
        result = subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=SECONDS, check=True)
        self.assertEqual(result.stderr, "")
        return result.stdout.split()

    def test_bash_completes_commands_options_and_values(self):
        self.assertIn("launch", self.complete("accel", ""))
        self.assertEqual(self.complete("accel", "lau"), ["launch"])
        self.assertEqual(self.complete("accel", "--v"), ["--version"])
        self.assertEqual(self.complete("accel", "launch", "--num-proc"), ["--num-processes"])
        self.assertEqual(self.complete("accel", "launch", "--num_proc"), ["--num_processes"])
        self.assertEqual(self.complete("accel", "launch", "--mixed-precision", "f"), ["fp16", "fp8"])
        self.assertEqual(self.complete("accel", "launch", "--mixed_precision", "b"), ["bf16"])
        self.assertEqual(self.complete("accel", "launch", "--num-processes", ""), [])
        self.assertEqual(self.complete("accel", "config", "d"), ["default"])
        self.assertEqual(self.complete("accel", "config", "default", "--mi"), ["--mixed-precision"])
        self.assertEqual(self.complete("accel", "config", "default", "--mixed-precision", "b"), ["bf16"])
        self.assertEqual(self.complete("accel", "completions", ""), ["bash", "zsh", "fish"])
        self.assertNotIn("manual", self.complete("accel", ""))

    def test_the_scripts_of_all_shells_have_all_commands(self):
        names = [line.split()[0] for line in self.accel("--help").stdout.splitlines() if line.startswith("  ")][:-2]
        self.assertIn("tpu-config", names)
        for shell in ("bash", "zsh", "fish"):
            script = self.accel("completions", shell).stdout
            for name in names:
                self.assertIn(name, script)
            check = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "-n"]}[shell]
            if subprocess.run(["sh", "-c", f"command -v {shell}"], capture_output=True, check=False).returncode == 0:
                path = self.write("script", script)
                subprocess.run([*check, path], check=True, timeout=SECONDS)

    def test_other_shells_are_refused(self):
        self.expect(2, "'tcsh' is not a shell that is known", "completions", "tcsh")
        self.expect(2, "expected bash, zsh or fish", "completions")


class Manual(CommandTest):
    def test_there_is_a_page_for_each_command(self):
        self.expect(0, "", "manual", self.folder / "man1")
        pages = self.files()
        self.assertEqual(pages, sorted(f"man1/{page}" for page in PAGES.split()), "pages that are installed")
        launch = (self.folder / "man1/accel-launch.1").read_text()
        self.assertIn("\\fB\\-\\-num\\-processes\\fR", launch)
        self.assertIn(".SH NAME\naccel\\-launch \\- starts", launch)
        config = (self.folder / "man1/accel-config.1").read_text()
        self.assertIn('.SH "default"', config)
        for page in pages:
            if subprocess.run(["sh", "-c", "command -v groff"], capture_output=True, check=False).returncode == 0:
                shown = subprocess.run(["groff", "-man", "-Tutf8", "-ww", self.folder / page], capture_output=True, text=True,
                                       timeout=SECONDS, check=True)
                self.assertEqual(shown.stderr, "", page)


if __name__ == "__main__":
    ACCEL, PAGES = os.path.abspath(sys.argv.pop(1)), sys.argv.pop(1)
    unittest.main()
