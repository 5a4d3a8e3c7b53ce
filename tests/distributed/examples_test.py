#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the example programs on two processes, as the README says: examples_test.py LAUNCHER HELLO TRAIN_GPT
OWN_GRADIENTS HOST_LOOP CASES."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

LAUNCHER, HELLO, TRAIN_GPT, OWN_GRADIENTS, HOST_LOOP = sys.argv[1:6]
LOSS = re.compile(r"step (\d+)/\d+  loss (\S+)")
TINY_MODEL = ["--layers", "1", "--heads", "2", "--width", "32", "--context", "16", "--batch", "4", "--log-every", "1",
              "--eval-every", "0", "--sample-length", "8"]


def run(command, processes=2, **variables):
    env = dict(os.environ, ACCELERATE_USE_CPU="true", OMP_NUM_THREADS="1", **variables)
    launched = [LAUNCHER, "launch", "--num-processes", str(processes), "--", *command]
    return subprocess.run(launched, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100)


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.text = os.path.join(cls.folder.name, "text.txt")
        with open(cls.text, "w") as file:
            file.write("one two three four five six seven eight nine ten\n" * 400)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def train(self, *options):
        """Trains the tiny model. Returns its output and the loss of each step, as printed."""
        done = run([TRAIN_GPT, "--text", self.text, *TINY_MODEL, *options])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout, dict(LOSS.findall(done.stdout))

    def test_hello_gathers_all_ranks(self):
        done = run([HELLO])
        self.assertEqual((done.returncode, done.stdout), (0, "[0,1]\n"), done.stderr)

    def test_own_gradients_train_alike_on_any_number_of_processes(self):
        losses = {}
        for processes, steps in ((1, 1), (2, 1), (2, 3)):
            done = run([OWN_GRADIENTS], processes, ACCELERATE_GRADIENT_ACCUMULATION_STEPS=str(steps))
            self.assertEqual(done.returncode, 0, done.stderr)
            losses[processes, steps] = [float(loss) for loss in re.findall(r"loss (\S+)", done.stdout)]
            self.assertEqual(len(losses[processes, steps]), 6)
        alone = losses.pop((1, 1))
        self.assertLess(alone[-1], 0.2 * alone[0])
        for case, curve in losses.items():
            for one, other in zip(alone, curve):
                self.assertAlmostEqual(one, other, delta=0.02 * one + 1e-5, msg=str(case))

    # Regression: parameters in a program's own memory were refused where the state was on an accelerator.
    def test_own_gradients_train_beside_an_accelerator(self):
        """The parameters stay in the program's memory, whatever the state's device is."""
        losses = []
        for device in ("cpu", "sim"):
            done = run([OWN_GRADIENTS], ACCELERATE_TORCH_DEVICE=device, ACCEL_DEVICE_PLUGINS=os.environ["SIMULATED_DEVICE_LIBRARY"])
            self.assertEqual(done.returncode, 0, done.stderr)
            losses.append(re.findall(r"loss (\S+)", done.stdout))
        self.assertEqual(*losses)

    def test_loss_falls_and_a_sample_is_written(self):
        output, losses = self.train("--steps", "60", "--lr", "0.01")
        self.assertLess(float(losses["60"]), 0.7 * float(losses["1"]))
        self.assertIn("validation loss", output)
        self.assertIn("A sample of 8 bytes", output)

    def test_resumed_run_repeats_every_loss(self):
        # An epoch has 138 batches: the checkpoint, after 105, and the end, after 210, are in different ones.
        checkpoints = os.path.join(self.folder.name, "runs", "checkpoints")
        options = ["--steps", "70", "--accumulate", "3", "--checkpoint-dir", checkpoints, "--checkpoint-every", "35"]
        _, whole = self.train(*options)
        self.assertEqual(len(whole), 70)
        output, resumed = self.train(*options, f"--resume={checkpoints}/step-35")
        self.assertIn("resumed", output)
        self.assertEqual(resumed, {step: loss for step, loss in whole.items() if int(step) > 35})
        output, _ = self.train(*options, "--resume")
        self.assertIn("step-70", output)

    def test_training_for_a_time(self):
        checkpoints = os.path.join(self.folder.name, "timed")
        options = ["--seconds", "3", "--eval-every", "25%", "--checkpoint-dir", checkpoints, "--checkpoint-every", "50%"]
        output, _ = self.train(*options)
        seconds = float(re.search(r"trained \d+ tokens in (\S+) s", output).group(1))
        self.assertTrue(1 < seconds < 10, output)
        self.assertTrue(3 <= output.count("validation loss") <= 4, output)
        last = int(re.findall(r"saved .*/step-(\d+)\n", output)[-1])
        self.assertIn(f"step {last}  validation loss", output)
        # The same time again, from there; the folder's newest is the one that was written last.
        os.mkdir(os.path.join(checkpoints, f"step-{last * 1000}"))
        os.utime(os.path.join(checkpoints, f"step-{last * 1000}"), (1, 1))
        output, losses = self.train(*options, "--resume")
        self.assertIn(f"resumed {checkpoints}/step-{last}\n", output)
        self.assertEqual(min(map(int, losses)), last + 1)
        # The last of the two options counts.
        self.assertEqual(len(self.train("--seconds", "1000", "--steps", "5")[1]), 5)

    def test_bad_options_say_what_was_expected(self):
        for options, message in ((["--steps", "none"], "--steps 'none': expected"), (["--precision", "fp7"], "bf16"),
                                 (["--eval-every", "a%"], "20%"), (["--log-every", "0%"], "above 0"),
                                 (["--text", "/nowhere"], "/nowhere"), (["--resume"], "no checkpoint")):
            done = run([TRAIN_GPT, "--text", self.text, *TINY_MODEL, *options], processes=1)
            self.assertNotEqual(done.returncode, 0, options)
            self.assertIn(message, done.stderr)


class HostLoop(unittest.TestCase):
    def test_a_host_loop_keeps_its_frames_while_it_trains(self):
        done = run([HOST_LOOP, "120"])
        self.assertEqual(done.returncode, 0, done.stderr)
        rate, median, before, after = map(float, re.search(
            r"rank 0: (\S+) frames a second, training took (\S+) ms of a frame \(median\), .* loss (\S+) -> (\S+)",
            done.stdout).groups())
        self.assertGreater(rate, 50)
        self.assertLess(median, 2)
        self.assertLess(after, before)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[6:]])
