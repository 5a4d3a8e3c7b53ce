#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that other launchers start: other_launchers_test.py RANK_PROGRAM

They find their places in the variables of mpirun, where it is installed, and in those that Slurm's srun sets.
"""

import os
import shutil
import subprocess
import sys
import tempfile

from run_ranks import LIMIT_S, fail, free_port

RANKS = 2
OTHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMPI_", "PMI_", "SLURM_")


def environment(**variables):
    """This process's, without what a launcher may have set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS)}
    return dict(kept, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), **variables)


def expect_success(processes, what):
    try:
        for process in processes:
            status = process.wait(LIMIT_S)
            if status != 0:
                fail(f"{what} ended with status {status}")
    except subprocess.TimeoutExpired:
        fail(f"{what} did not end within {LIMIT_S} s")
    finally:
        for process in processes:
            process.kill()
            process.wait()


def by_mpirun(program):
    if not shutil.which("mpirun"):
        print("mpirun is not installed")
        return
    with tempfile.TemporaryDirectory(prefix="accel-mpi-") as folder:
        # Open MPI wants to be told that more ranks than cores, and the user root, are meant.
        own = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "TMPDIR": folder}
        command = ["mpirun", "-n", str(RANKS), program, "collectives", "1025"]
        expect_success([subprocess.Popen(command, env=environment(**own), stdin=subprocess.DEVNULL)], "mpirun")


def by_slurm(program):
    job = environment(SLURM_STEP_NUM_TASKS=str(RANKS), SLURM_NTASKS_PER_NODE=str(RANKS))
    ranks = [subprocess.Popen([program, "collectives", "1025"], stdin=subprocess.DEVNULL,
                              env=dict(job, SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank))) for rank in range(RANKS)]
    expect_success(ranks, "ranks with Slurm's variables")


def main():
    if len(sys.argv) != 2:
        fail(__doc__.splitlines()[0])
    by_mpirun(sys.argv[1])
    by_slurm(sys.argv[1])


if __name__ == "__main__":
    main()
