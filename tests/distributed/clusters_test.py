#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the commands, scripts and manifests of docs/clusters.md on two hosts: clusters_test.py ACCEL RESUME DOCUMENT
[TORCHRUN] [test ...]

A test for which a program is missing is left out; without any, or without what two_hosts.py needs, all are skipped (77).
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from resumed_training import STEP, STEPS, ResumedTraining
from run_ranks import LIMIT_S, fail
from slurm_cluster import SlurmCluster, is_installed
from two_hosts import Network, NoLink

SKIPPED = 77


class LeftOut(Exception):
    """A program is not installed."""


class Desk:
    """A folder with the programs as the document names them, seen from both hosts."""

    def __init__(self, accel, resume, document):
        self.temporary = tempfile.TemporaryDirectory(prefix="accel-clusters-")
        self.folder = pathlib.Path(self.temporary.name)
        (self.folder / "accel").symlink_to(os.path.abspath(accel))
        (self.folder / "resume").symlink_to(os.path.abspath(resume))
        self.blocks = {name: text for name, text in re.findall(r"^```\w+ (\w+)\n(.*?)^```", pathlib.Path(document).read_text(), re.M | re.S)}
        (self.folder / "hosts").write_text(self.blocks["hosts"])
        names = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "SLURM_", "OMPI_", "PMI_", "PET_", "ACCELERATE_", "ACCEL_HOST", "ACCEL_JOB")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        self.environment = dict(kept, PATH=f"{self.folder}:{os.environ['PATH']}", OMP_NUM_THREADS="1")
        self.undisturbed = ResumedTraining(accel, resume, self.folder, self.environment)

    def begin(self):
        shutil.rmtree(self.folder / "run", ignore_errors=True)

    def expect(self, output, what, **options):
        self.undisturbed.expect(output, what, **options)
        print(f"{what}: {len(set(STEP.findall(output)))} steps", flush=True)


def start(desk, network, host, command, also="true", **variables):
    """A command of the shell on a host; its output is that of rank 0, if it is there."""
    return subprocess.Popen([*network.enter(host, also), *(f"{name}={value}" for name, value in variables.items()), "bash", "-c", command],
                            cwd=desk.folder, env=desk.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, start_new_session=True)


def finish(processes, what, expected=0):
    """What they say together; all end with `expected`."""
    said = []
    try:
        for process in processes:
            said.append(process.communicate(timeout=LIMIT_S)[0])
            if process.returncode != expected:
                fail(f"{what} ended with {process.returncode}; expected {expected}: {said}")
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
    return "".join(said)


def on_both(desk, network, command, what, variables=lambda host: {"HOST": host}, **options):
    desk.begin()
    desk.expect(finish([start(desk, network, host, command, **options, **variables(host)) for host in (0, 1)], what), what)


def static(desk, network):
    on_both(desk, network, desk.blocks["static"], "hosts with numbers")


def elastic(desk, network):
    on_both(desk, network, desk.blocks["elastic"], "hosts that get numbers")


def ssh(desk, network):
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin:/bin")
    if not sshd or not shutil.which("ssh"):
        raise LeftOut("sshd")
    folder = desk.folder
    for key in ("host_key", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    (folder / "sshd_config").write_text(
        f"Port 2222\nHostKey {folder}/host_key\nAuthorizedKeysFile {folder}/key.pub\nPidFile none\nUsePAM no\nStrictModes no\n"
        "PermitRootLogin yes\nPasswordAuthentication no\nSetEnv ACCEL_HOST_ID=1\n")
    (folder / "ssh_config").write_text(
        f"Host *\nPort 2222\nIdentityFile {folder}/key\nIdentitiesOnly yes\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"
        "BatchMode yes\nLogLevel ERROR\n")
    server = start(desk, network, 1, f"exec {sshd} -D -e -f {folder}/sshd_config", also="mount -t tmpfs none /run && mkdir /run/sshd")
    try:
        wait_until(lambda: "2222" in network.hosts[1].run("ss", "-ltn"), "sshd listens", server)
        desk.begin()
        output = finish([start(desk, network, 0, desk.blocks["ssh"])], "ssh")
        desk.expect(output, "ssh")
    finally:
        server.terminate()
        server.communicate()


def wait_until(condition, what, process=None, seconds=LIMIT_S):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end or (process is not None and process.poll() is not None):
            said = process.communicate()[0] if process is not None and process.poll() is not None else ""
            fail(f"{what}: not within {seconds} s; {said}")
        time.sleep(0.05)


def start_soon(cluster, job, condition):
    """Slurm lets a job that was put into the queue again wait for some minutes; some seconds it does need."""
    is_asked = []

    def is_met():
        if cluster.state(job).get("JobState") == "PENDING" and not is_asked:
            cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now+4seconds")
            is_asked.append(True)
        return condition()
    try:
        wait_until(is_met, f"job {job} goes on")
    except SystemExit as error:
        fail(f"{error}: {cluster.state(job)} {cluster.logs()}")


def slurm(desk, network):
    """A job that is told to stop by both signals, is put into the queue again, and goes on."""
    if not is_installed():
        raise LeftOut("Slurm")
    with SlurmCluster(network) as cluster:
        cluster.environment.update(desk.environment, SLURM_CONF=cluster.environment["SLURM_CONF"])
        desk.begin()
        output = cluster.run("sh", "-c", desk.blocks["srun"], cwd=desk.folder)
        desk.expect(output, "ranks of srun")
        desk.begin()
        script = desk.folder / "train.sbatch"
        script.write_text(desk.blocks["sbatch"].replace("run 200", "run 200 20"))
        log = desk.folder / "train.log"
        job = cluster.submit(script, cwd=desk.folder)
        said = lambda: log.read_text() if log.exists() else ""
        for number, (stop, step) in enumerate(((["--batch", "--signal=USR1"], 25), (["--signal=TERM"], 75))):
            start_soon(cluster, job, lambda: f"step {step} loss" in said())
            cluster.run("scancel", *stop, job)
            wait_until(lambda: said().count("stopped after step") == number + 1, f"job {job} stops after {step}", seconds=60)
            wait_until(lambda: cluster.state(job).get("Restarts") == str(number + 1), f"job {job} is put into the queue again", seconds=60)
        start_soon(cluster, job, lambda: f"step {STEPS} loss" in said())
        cluster.wait_for(job, ("COMPLETED",), 120)
        text = said()
        desk.expect(text, "sbatch, stopped twice")
        if text.count("from step: 0\n") != 1 or text.count("from step:") != 3:
            fail(f"the job did not go on from its checkpoints: {text}")


def mpi_variables(desk, network):
    """Open MPI's way to another host: a program in the place of ssh that enters it. It wants to be told that the user root
    is meant."""
    if not shutil.which("mpirun") or "Open MPI" not in subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False).stdout:
        raise LeftOut("Open MPI")
    agent = desk.folder / "agent"
    enter = " ".join(f"'{word}'" for word in network.enter(1))
    agent.write_text(f'#!/bin/sh\nshift\nexec {enter} sh -c "$*"\n')
    agent.chmod(0o755)
    return {"OMPI_MCA_plm_rsh_agent": agent, "OMPI_ALLOW_RUN_AS_ROOT": 1, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": 1,
            "OMPI_MCA_oob_tcp_if_include": "10.83.0.0/24"}


def mpirun(desk, network):
    variables = mpi_variables(desk, network)
    by_launcher = "accel launch --mpirun-hostfile hosts --num-machines 2 --num-processes 2 --main-process-ip 10.83.0.1 ./resume run 200"
    if by_launcher not in re.sub(r"\s+", " ", pathlib.Path(sys.argv[3]).read_text()):
        fail("docs/clusters.md does not have the command of --mpirun-hostfile")
    for command, what in ((desk.blocks["mpirun"], "ranks of mpirun"), (desk.blocks["mpirun_launcher"], "launchers of mpirun"),
                          (by_launcher, "--mpirun-hostfile")):
        desk.begin()
        desk.expect(finish([start(desk, network, 0, command, **variables)], what), what)


def torchrun(desk, network):
    if len(sys.argv) < 5 or not os.access(sys.argv[4], os.X_OK):
        raise LeftOut("torchrun")
    on_both(desk, network, desk.blocks["torchrun"].replace("torchrun", os.path.abspath(sys.argv[4]), 1), "torchrun")
    inside = f"{os.path.abspath(sys.argv[4])} --standalone --nproc-per-node 1 --no-python accel launch"
    desk.begin()
    output = finish([start(desk, network, 0, f"{inside} ./resume run 20")], "a launcher in torchrun")
    if "processes: 1, from step: 0" not in output:
        fail(f"a launcher in torchrun did not become its program: {output}")
    output = finish([start(desk, network, 0, f"{inside} --num-processes 2 ./resume run 20")], "two ranks in torchrun", 1)
    if "torchrun has started this as rank 0 of 1, and --num-processes is 2" not in output:
        fail(f"two ranks in one of torchrun: {output}")


def lists(text, key):
    return [json.loads(found) for found in re.findall(rf"^ *{key}: (\[.*\])$", text, re.M)]


def jobset(desk, network):
    """The pods' variables are those that Kubernetes sets, their names are in a file of this test."""
    manifest = desk.blocks["jobset"]
    (command,) = lists(manifest, "command")
    own = json.loads(re.search(r"- (\{\"name.*\})", manifest)[1])
    (desk.folder / "names").write_text(f"{network.hosts[0].address} {own['value']}\n")
    words = " ".join(f"'{word}'" for word in command)
    on_both(desk, network, words, "JobSet", lambda host: {"JOB_COMPLETION_INDEX": host, own["name"]: own["value"]},
            also=f"mount --bind {desk.folder}/names /etc/hosts")


def pytorchjob(desk, network):
    commands = lists(desk.blocks["pytorchjob"], "command")
    if len(commands) != 2 or commands[0] != commands[1]:
        fail(f"master and workers of the PyTorchJob differ: {commands}")
    words = " ".join(f"'{word}'" for word in commands[0])
    (desk.folder / "names").write_text(f"{network.hosts[0].address} train-master-0\n")

    def variables(host):
        return {"PET_NNODES": 2, "PET_NODE_RANK": host, "PET_MASTER_ADDR": "train-master-0", "PET_MASTER_PORT": 23456,
                "PET_NPROC_PER_NODE": 1, "MASTER_ADDR": "train-master-0", "MASTER_PORT": 23456, "WORLD_SIZE": 2, "RANK": host}
    on_both(desk, network, words, "PyTorchJob", variables, also=f"mount --bind {desk.folder}/names /etc/hosts")


TESTS = (static, elastic, ssh, slurm, mpirun, torchrun, jobset, pytorchjob)


def main():
    if len(sys.argv) < 4:
        fail(__doc__.splitlines()[0])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    chosen = sys.argv[5:] or [test.__name__ for test in TESTS]
    done = 0
    try:
        with Network() as network:
            desk = Desk(*sys.argv[1:4])
            for test in TESTS:
                if test.__name__ not in chosen:
                    continue
                begin = time.monotonic()
                try:
                    test(desk, network)
                    done += 1
                    print(f"{test.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
                except LeftOut as missing:
                    print(f"{test.__name__} is left out: {missing} is not installed", flush=True)
    except NoLink as error:
        print(f"two hosts cannot be made here: {error}")
    if not done:
        sys.exit(SKIPPED)


if __name__ == "__main__":
    main()
