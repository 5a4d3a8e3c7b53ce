#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""With the variables of tools/environment.sh alone, programs are built and run with a build folder: build_variables_test.py ROOT BUILD."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT, BUILD = (pathlib.Path(argument).resolve() for argument in (sys.argv.pop(1), sys.argv.pop(1)))
PROGRAM = r"""#include <accel.h>
#include <stdio.h>
int main(void) {
  accel_state_t *state = NULL;
  if (accel_state_create(NULL, &state) < 0) return 1;
  if (accel_is_main_process(state)) printf("%d ranks\n", accel_num_processes(state));
  const accel_status_t status = accel_end_training(state);
  accel_state_release(state);
  return status < 0;
}
"""
KEPT = ("HOME", "PATH", "TMPDIR", "ASAN_OPTIONS", "LD_PRELOAD")


class Variables(unittest.TestCase):
    def run_with(self, folder, build, commands):
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        environment.update(ACCELERATE_USE_CPU="1", OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
        return subprocess.run(["sh", "-ec", f'variables=$("{ROOT}/tools/environment.sh" "{build}")\neval "$variables"\n{commands}'], cwd=folder,
                              env=environment, capture_output=True, text=True, timeout=100, check=False)

    def test_a_program_is_built_and_launched(self):
        with tempfile.TemporaryDirectory(prefix="accel-variables-") as folder:
            (pathlib.Path(folder) / "program.c").write_text(PROGRAM)
            done = self.run_with(folder, BUILD, "cc program.c $(pkg-config --cflags --libs accel) -o program\n./program\n"
                                                "accel launch --num-processes 2 -- ./program")
            self.assertEqual((done.returncode, done.stdout), (0, "1 ranks\n2 ranks\n"), done.stderr)

    @unittest.skipUnless(list((BUILD / "bindings/python/accel").glob("_capi*.so")), "the Python binding is not built")
    def test_python_finds_the_package(self):
        done = self.run_with(BUILD, BUILD, "python3 -c 'import accel; print(accel.tensor([1.5]).sum().item())'")
        self.assertEqual((done.returncode, done.stdout), (0, "1.5\n"), done.stderr)

    def test_paths_with_blanks_and_quotes(self):
        with tempfile.TemporaryDirectory(prefix="accel-it's a folder-") as folder:
            (pathlib.Path(folder) / "build").symlink_to(BUILD)
            environment = {**os.environ, "LD_LIBRARY_PATH": "/before"}
            script = f'eval "$(\'{ROOT}/tools/environment.sh\' ./build)"; echo "$LD_LIBRARY_PATH"; echo "$LIBACCEL"'
            done = subprocess.run(["sh", "-ec", script], cwd=folder, env=environment, capture_output=True, text=True, check=False)
            self.assertEqual(done.stdout, f"{folder}/build/src:/before\n{folder}/build/src\n", done.stderr)

    def test_a_folder_without_a_build_is_named(self):
        done = subprocess.run([ROOT / "tools/environment.sh", "/nowhere"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, "environment: /nowhere has no src/libaccel.so; expected the folder of a build, which tools/build.sh makes\n")


if __name__ == "__main__":
    unittest.main()
