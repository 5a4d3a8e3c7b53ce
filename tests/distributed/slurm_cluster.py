# SPDX-License-Identifier: Apache-2.0
"""A Slurm of two nodes on this machine, each a host of two_hosts.py, with its daemons and files in a temporary folder."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from run_ranks import fail, free_port

READY_WITHIN_S = 60
CONFIGURATION = """
ClusterName=test
SlurmctldHost={hostname}({addresses[0]})
SlurmctldPort={ports[0]}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
JobRequeue=1
MinJobAge=300
KillWait=30
MailProg=/bin/true
TaskProlog={folder}/prolog
SlurmctldDebug=info
SlurmdDebug=info
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
NodeName={names[0]} NodeHostname={hostname} NodeAddr={addresses[0]} Port={ports[1]} CPUs=2 State=UNKNOWN
NodeName={names[1]} NodeHostname={hostname} NodeAddr={addresses[1]} Port={ports[2]} CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def is_installed():
    return all(shutil.which(name) for name in ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue"))


class SlurmCluster:
    """A context. Node 1 is on the first host of `network`, node 2 on the second."""

    NAMES = ("accel-n1", "accel-n2")

    def __init__(self, network):
        self.network = network
        self.temporary = tempfile.TemporaryDirectory(prefix="accel-slurm-")
        self.folder = pathlib.Path(self.temporary.name)
        addresses = [host.address for host in network.hosts]
        (self.folder / "state").mkdir()
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(
            f"{address} {name}\n" for address, name in zip(addresses, self.NAMES)))
        configuration = CONFIGURATION.format(names=self.NAMES, addresses=addresses, folder=self.folder,
                                             hostname=os.uname().nodename, ports=[free_port() for _ in range(3)])
        (self.folder / "slurm.conf").write_text(configuration)
        # Tasks get the variables of the program that submits them, not those of their host.
        (self.folder / "prolog").write_text('#!/bin/sh\necho "export ACCEL_HOST_ID=$SLURM_NODEID"\n')
        (self.folder / "prolog").chmod(0o755)
        # A plugin for cgroups must load, though nothing uses it.
        (self.folder / "cgroup").mkdir()
        (self.folder / "cgroup.conf").write_text(f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={self.folder}/cgroup\nCgroupAutomount=no\n")
        for name in self.NAMES:
            (self.folder / f"spool.{name}").mkdir()
        self.environment = dict(os.environ, SLURM_CONF=str(self.folder / "slurm.conf"))
        self.daemons = []

    def command(self, node, *words):
        """A command on a node, which knows the names of both."""
        enter = self.network.enter(node, f'mount --bind {self.folder}/hosts /etc/hosts')
        return [*enter, *words]

    def __enter__(self):
        try:
            self.start("slurmctld", 0, "slurmctld", "-D", "-i")
            for node, name in enumerate(self.NAMES):
                self.start(f"slurmd.{name}", node, "slurmd", "-D", "-N", name)
            self.wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self, name, node, *words):
        log = open(self.folder / f"{name}.out", "w", encoding="utf-8")
        with log:
            self.daemons.append(subprocess.Popen(self.command(node, *words), env=self.environment, stdin=subprocess.DEVNULL,
                                                 stdout=log, stderr=log))

    def wait_until_ready(self):
        end = time.monotonic() + READY_WITHIN_S
        while any(daemon.poll() is not None for daemon in self.daemons) or self.run("sinfo", "-h", "-o", "%T %D", check=False).split() != ["idle", "2"]:
            if time.monotonic() > end or any(daemon.poll() is not None for daemon in self.daemons):
                fail("Slurm did not start: " + self.logs())
            time.sleep(0.2)

    def logs(self):
        return "\n".join(f"--- {file.name}\n{file.read_text(errors='replace')[-3000:]}" for file in sorted(self.folder.glob("*.[lo][ou][gt]")))

    def run(self, *words, node=0, check=True, **options):
        """What a command on a node says."""
        done = subprocess.run(self.command(node, *words), env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=READY_WITHIN_S, **options)
        if check and done.returncode != 0:
            fail(f"{' '.join(words)}: {done.stdout}\n{self.logs()}")
        return done.stdout

    def submit(self, script, *options, **others):
        """The number of a new job of an sbatch script."""
        return self.run("sbatch", "--parsable", *options, str(script), **others).strip()

    def state(self, job):
        words = self.run("scontrol", "show", "job", job, "-o", check=False)
        return dict(word.split("=", 1) for word in words.split() if "=" in word)

    def wait_for(self, job, states, seconds):
        end = time.monotonic() + seconds
        while (found := self.state(job)).get("JobState") not in states:
            if time.monotonic() > end:
                fail(f"job {job} is {found.get('JobState')}; expected {states}\n{self.logs()}")
            time.sleep(0.2)
        return found

    def __exit__(self, *_):
        if self.daemons and all(daemon.poll() is None for daemon in self.daemons):
            self.run("scancel", "--full", "--state=RUNNING", check=False)
            self.run("scontrol", "shutdown", check=False)
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.temporary.cleanup()
