#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Launchers of several hosts, here all on this one: how they find each other, end and start again.

usage: launch_hosts_test.py PATH_OF_ACCEL [unittest argument ...]
"""

import hashlib
import hmac
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from launch_test import clean_environment, is_alive, wait_until
from run_ranks import free_port

ACCEL = ""
LIMIT_S = 60
ENDS_WITHIN_S = 2.0  # all hosts after a failed rank
SECRET = "not a good secret"


def kept_environment():
    """That of this process without what batch systems set."""
    names = ("SLURM_", "OMPI_", "PMI_", "MPI_", "PET_", "TORCHELASTIC_", "JOB_COMPLETION")
    return {name: value for name, value in clean_environment().items() if not name.startswith(names)}


class Launcher:
    """The launcher of one host, in the background."""

    def __init__(self, arguments, **variables):
        self.process = subprocess.Popen([ACCEL, "launch", *map(str, arguments)], stdin=subprocess.DEVNULL, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                                        env={**kept_environment(), **variables})

    def end(self):
        """(exit status, what it said)"""
        _, errors = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, errors

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class HostsTest(unittest.TestCase):
    def setUp(self):
        self.port = free_port()
        folder = tempfile.TemporaryDirectory(prefix="accel-hosts-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def launch(self, *arguments, **variables):
        launcher = Launcher(arguments, FOLDER=str(self.folder), **variables)
        self.addCleanup(launcher.close)
        return launcher

    def host(self, number, script, *options, hosts=2, ranks=2, program=("sh", "-c"), **variables):
        """One of `hosts` with numbers, which run `script`."""
        return self.launch("--num-processes", ranks, "--num-machines", hosts, "--machine-rank", number, "--main-process-ip",
                           "127.0.0.1", "--main-process-port", self.port, *options, "--", *program, script, **variables)

    def elastic(self, script, *options, nnodes="1:2", ranks=2, **variables):
        return self.launch("--num-processes", ranks, "--nnodes", nnodes, "--rdzv-endpoint", f"127.0.0.1:{self.port}",
                           *options, "--", "sh", "-c", script, **variables)

    def written(self, name):
        """The content of a file of the ranks, once it is there: a shell makes the file before it writes."""
        file = self.folder / name
        self.assertTrue(wait_until(lambda: file.exists() and file.stat().st_size > 0, LIMIT_S), f"{name} was not written")
        return file.read_text()

    def expect(self, launchers, *statuses, words=()):
        ends = [launcher.end() for launcher in launchers]
        self.assertEqual([status for status, _ in ends], list(statuses), ends)
        for (_, errors), word in zip(ends, words):
            self.assertRegex(errors, word)
        return [errors for _, errors in ends]


NOTE = 'echo $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT $ACCEL_JOB_TOKEN $ACCEL_RESTART_COUNT ' \
       '>"$FOLDER/new.$RANK"; mv "$FOLDER/new.$RANK" "$FOLDER/rank.$RANK.$ACCEL_RESTART_COUNT"; '


class Joining(HostsTest):
    def test_ranks_of_all_hosts_have_places_of_one_job(self):
        hosts = [self.host(number, NOTE, ranks=4) for number in (1, 0)]
        self.assertEqual(self.expect(hosts, 0, 0), ["", ""])
        ranks = [self.written(f"rank.{rank}.0").split() for rank in range(4)]
        self.assertEqual([rank[:4] for rank in ranks], [["4", str(rank % 2), "2", "127.0.0.1"] for rank in range(4)])
        self.assertEqual(len({tuple(rank[4:]) for rank in ranks}), 1, "one port, token and attempt")
        self.assertNotEqual(ranks[0][4], str(self.port))
        self.assertEqual(len(ranks[0]), 7)

    def test_addresses_of_ipv6(self):
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError as error:
            self.skipTest(f"this host has no IPv6: {error}")
        hosts = [self.launch("--num-processes", 2, "--num-machines", 2, "--machine-rank", number, "--rdzv-backend", "static",
                             "--rdzv-endpoint", f"[::1]:{self.port}", "--", "sh", "-c", NOTE) for number in (1, 0)]
        self.expect(hosts, 0, 0)
        self.assertEqual(self.written("rank.1.0").split()[3], "::1")

    def test_who_is_missing_is_said_and_ends_the_waiting(self):
        options = ("--rdzv-timeout", "6")
        hosts = [self.host(number, "exit 3", *options, hosts=4, ranks=4) for number in (0, 2)]
        for errors in self.expect(hosts, 1, 1):
            self.assertIn("accel launch: 2 of 4 hosts joined, missing hosts 1, 3\n", errors)
            self.assertIn("the time for joining of 6 s is over", errors)

    def test_a_coordinator_that_is_not_there(self):
        host = self.host(1, "exit 3", "--rdzv-timeout", "6")
        words = rf"no coordinator yet at 127.0.0.1:{self.port}: Connection refused\n(.*\n)*.*cannot reach the coordinator at .* within 6 s"
        self.expect([host], 1, words=[words])

    def test_a_port_that_is_used(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", self.port))
            other.listen()
            self.expect([self.host(0, "exit 3")], 126, words=[f"port {self.port} is used by another program"])

    def test_hosts_that_do_not_fit(self):
        first = self.host(0, "exit 0", "--rdzv-timeout", "30")
        for options, word in (({"ranks": 4}, "the number of processes there is 4, that of .* is 2"),
                              ({"program": ("bash", "-c")}, "the program there is bash, that of .* is sh")):
            self.expect([self.host(1, "exit 0", **options)], 1, words=[f"has turned this host away: {word}"])
        self.expect([self.host(1, "exit 0", "--secret-file", self.secret_file())], 1, words=["it has no secret, and this host has one"])
        self.expect([first, self.host(1, "exit 0")], 0, 0)

    def secret_file(self, secret=SECRET, mode=0o600, name="secret"):
        path = self.folder / name
        path.write_text(secret + "\n")
        path.chmod(mode)
        return path

    def test_one_number_for_two_hosts(self):
        first, second = (self.host(number, "exit 0", hosts=3, ranks=3) for number in (0, 1))
        time.sleep(0.5)
        self.expect([self.host(1, "exit 0", hosts=3, ranks=3)], 1, words=["machine rank 1 is taken by"])
        self.expect([first, second, self.host(2, "exit 0", hosts=3, ranks=3)], 0, 0, 0)

    def test_wrong_options(self):
        for options, word in ((("--num-machines", 2, "--num-processes", 2), "the address of host 0 is not known"),
                              (("--nnodes", "2:1"), "--nnodes is '1'; expected an integer from 2"),
                              (("--nnodes", "x"), "--nnodes is 'x'; expected an integer"),
                              (("--rdzv-backend", "etcd"), "--rdzv-backend is 'etcd'; expected static or c10d"),
                              (("--rdzv-conf", "speed=3"), "--rdzv-conf has 'speed'; expected timeout"),
                              (("--rdzv-conf", "timeout=soon"), "--rdzv-conf timeout is 'soon'; expected an integer"),
                              (("--nnodes", "2", "--num-processes", 2, "--rdzv-endpoint", "h:0"),
                               "the port of --rdzv-endpoint is '0'; expected an integer from 1"),
                              (("--nnodes", "2", "--num-processes", 2, "--main-process-ip", "127.0.0.1", "--interface", "no0"),
                               r"--interface is 'no0'; expected one of .*lo \(127.0.0.1\)"),
                              (("--secret-file", self.secret_file(mode=0o640, name="open")), "can be used by others"),
                              (("--secret-file", self.secret_file("short", name="short")), "has 5 characters; expected at least 16")):
            with self.subTest(options=options):
                self.expect([self.launch(*options, "true")], 2, words=[word])


class Ending(HostsTest):
    def test_a_failed_rank_ends_all_hosts(self):
        times = []
        for failing in (0, 1):
            script = NOTE + f'[ $RANK = {failing} ] || exec sleep 60; while [ ! -f "$FOLDER/go" ]; do sleep 0.01; done; exit 5'
            hosts = [self.host(number, script) for number in (0, 1)]
            for rank in (0, 1):
                self.written(f"rank.{rank}.0")
            begin = time.monotonic()
            (self.folder / "go").touch()
            words = [f"rank {failing} failed: exit status 5", rf"rank {failing} on host {failing} \(.*\) failed: exit status 5"]
            self.expect(hosts, 5, 5, words=words if failing == 0 else words[::-1])
            times.append(time.monotonic() - begin)
            for file in self.folder.iterdir():
                file.unlink()
        self.assertLess(max(times), ENDS_WITHIN_S)
        print(f"a failed rank ended two hosts within {1000 * max(times):.0f} ms")

    def test_a_rank_that_does_not_want_to_end(self):
        script = NOTE + "[ $RANK = 1 ] && sleep 1 && exit 5; trap '' TERM; while true; do sleep 1; done"
        hosts = [self.host(number, script) for number in (0, 1)]
        for rank in (0, 1):
            self.written(f"rank.{rank}.0")
        begin = time.monotonic()
        self.expect(hosts, 5, 5)
        self.assertLess(time.monotonic() - begin, 1 + ENDS_WITHIN_S)

    def test_a_program_that_is_not_there(self):
        (self.folder / "program").write_text("#!/bin/sh\nexec sleep 60\n")
        (self.folder / "program").chmod(0o755)
        hosts = [self.host(0, "x", program=(self.folder / "program",)),
                 self.host(1, "x", "--max-restarts", "3", program=(self.folder / "other" / "program",))]
        self.expect(hosts, 127, 127, words=["was not found", "was not found"])

    def test_a_signal_for_one_host_is_one_for_all(self):
        for told in ((0,), (1,), (0, 1), (1, 0)):
            script = NOTE + "trap 'sleep 0.3; exit 75' TERM USR1; while true; do sleep 0.01; done"
            hosts = [self.host(number, script) for number in (0, 1)]
            for rank in (0, 1):
                self.written(f"rank.{rank}.0")
            for number in told:
                hosts[number].process.terminate()
            errors = self.expect(hosts, 75, 75)
            for number in (0, 1):
                self.assertIn("stopped by SIGTERM" if number in told else "received SIGTERM", errors[number])
            for file in self.folder.iterdir():
                file.unlink()

    def test_a_second_signal_ends_all_at_once(self):
        script = NOTE + "trap '' INT; while true; do sleep 0.1; done"
        hosts = [self.host(number, script) for number in (0, 1)]
        for rank in (0, 1):
            self.written(f"rank.{rank}.0")
        begin = time.monotonic()
        for _ in range(2):
            hosts[1].process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        self.expect(hosts, 130, 130)
        self.assertLess(time.monotonic() - begin, 5)

    def test_the_death_of_the_coordinator_ends_the_others(self):
        hosts = [self.host(number, NOTE + 'echo $$ >"$FOLDER/pid.$RANK"; exec sleep 60', "--max-restarts", "2") for number in (0, 1)]
        ranks = [int(self.written(f"pid.{rank}")) for rank in (0, 1)]
        begin = time.monotonic()
        hosts[0].process.kill()
        status, errors = hosts[1].end()
        self.assertEqual(status, 1)
        self.assertIn(f"the coordinator at 127.0.0.1:{self.port} has ended", errors)
        self.assertTrue(wait_until(lambda: not any(map(is_alive, ranks)), 5))
        self.assertLess(time.monotonic() - begin, 5)

    def test_a_launcher_that_stands_still_is_lost(self):
        options = ("--rdzv-conf", "keep_alive_timeout=2")
        hosts = [self.host(number, NOTE + "exec sleep 60", *options) for number in (0, 1)]
        for rank in (0, 1):
            self.written(f"rank.{rank}.0")
        hosts[1].process.send_signal(signal.SIGSTOP)
        self.expect(hosts[:1], 1, words=[r"host 1 \(.*\) is lost: no sign of life for 2000 ms"])
        hosts[1].process.send_signal(signal.SIGCONT)
        self.expect(hosts[1:], 1)

    def test_the_environment_that_ranks_get(self):
        for names, expected in (("none", ["", ""]), ("ONE", ["1", ""]), ("ON*,TWO", ["1", "2"]), (None, ["1", "2"])):
            options = [] if names is None else ["--environment", names]
            host = self.launch(*options, "--", "/bin/sh", "-c", f'echo "$RANK,$ONE,$TWO" >{self.folder}/found', ONE="1", TWO="2")
            self.expect([host], 0)
            self.assertEqual(self.written("found").strip().split(","), ["0", *expected])


class StartingAgain(HostsTest):
    # Once rank 0 has written its note, too: it is ended then.
    FAILS_ONCE = NOTE + ('if [ $RANK = 1 ] && [ $ACCEL_RESTART_COUNT = 0 ]; then '
                         'while [ ! -f "$FOLDER/rank.0.0" ]; do sleep 0.01; done; exit 7; fi; sleep 0.3; exit 0')

    def places(self, attempt, count):
        return [self.written(f"rank.{rank}.{attempt}").split() for rank in range(count)]

    def test_on_one_host(self):
        self.expect([self.launch("--num-processes", 2, "--max-restarts", 1, "--", "sh", "-c", self.FAILS_ONCE)], 0,
                    words=["rank 1 failed: exit status 7\n(.*\n)*accel launch: restart 1 of 1\naccel launch: attempt 2 with 2 ranks on 1 host\n"])
        first, second = self.places(0, 2)[0], self.places(1, 2)[0]
        self.assertNotEqual(first[4:6], second[4:6], "a new port and a new token")

    def test_not_more_often_than_allowed(self):
        script = 'echo x >>"$FOLDER/count"; exit 9'
        self.expect([self.launch("--max-restarts", 2, "--", "sh", "-c", script)], 9, words=["restart 2 of 2"])
        self.assertEqual(self.written("count"), "x\n" * 3)

    def test_on_purpose_stopped_ranks_are_not_started_again(self):
        self.expect([self.launch("--max-restarts", 2, "--", "sh", "-c", "exit 75")], 75)

    def test_on_two_hosts(self):
        self.expect([self.host(number, self.FAILS_ONCE, "--max-restarts", 2) for number in (0, 1)], 0, 0)
        self.assertEqual({tuple(place[:1]) for place in self.places(1, 2)}, {("2",)})

    def test_a_host_with_a_number_may_come_back(self):
        script = NOTE + '[ $ACCEL_RESTART_COUNT = 0 ] && exec sleep 60; exit 0'
        hosts = [self.host(number, script, "--max-restarts", 1) for number in (0, 1)]
        self.places(0, 2)
        hosts[1].process.kill()
        hosts[1].end()
        self.expect([hosts[0], self.host(1, script, "--max-restarts", 1)], 0, 0)
        self.places(1, 2)

    WAITS = NOTE + 'trap "exit 75" TERM; while [ ! -f "$FOLDER/go" ]; do sleep 0.01; done; exit 0'

    def test_a_lost_host_leaves_the_others_fewer_ranks(self):
        options = ("--max-restarts", 1)
        hosts = [self.elastic(self.WAITS, *options) for _ in range(2)]
        self.places(0, 2)
        lost, kept = sorted(hosts, key=lambda host: self.is_coordinator(host))
        begin = time.monotonic()
        lost.process.kill()
        self.assertEqual(self.places(1, 1)[0][0], "1")
        print(f"a lost host: the next attempt began after {1000 * (time.monotonic() - begin):.0f} ms")
        (self.folder / "go").touch()
        self.expect([kept], 0, words=["is lost: its launcher has ended"])

    def is_coordinator(self, host):
        """Whether it is the one that listens at the port."""
        inodes = set()
        for name in os.listdir(f"/proc/{host.process.pid}/fd"):
            inodes.add(os.readlink(f"/proc/{host.process.pid}/fd/{name}"))
        with open("/proc/net/tcp", encoding="ascii") as table:
            entries = [line.split() for line in table][1:]
        return any(entry[3] == "0A" and int(entry[1].split(":")[1], 16) == self.port and f"socket:[{entry[9]}]" in inodes
                   for entry in entries)

    def test_a_host_that_comes_later_joins_at_the_next_change(self):
        options = ("--rdzv-conf", "last_call_timeout=0")
        first = self.elastic(self.WAITS, *options)
        self.assertEqual(self.places(0, 1)[0][0], "1")
        second = self.elastic(self.WAITS, *options)
        self.assertEqual([place[0] for place in self.places(1, 2)], ["2", "2"])
        (self.folder / "go").touch()
        self.expect([first, second], 0, 0, words=["has joined: the job goes on with more hosts"])

    def test_a_host_that_is_told_to_stop_leaves_the_others(self):
        hosts = [self.elastic(self.WAITS, nnodes="2:3", ranks=3) for _ in range(3)]
        self.places(0, 3)
        leaving = next(host for host in hosts if not self.is_coordinator(host))
        leaving.process.terminate()
        self.assertEqual([place[0] for place in self.places(1, 2)], ["2", "2"])
        self.expect([leaving], 75, words=["stopped by SIGTERM"])
        (self.folder / "go").touch()
        self.expect([host for host in hosts if host is not leaving], 0, 0)

    def test_the_first_attempt_waits_for_more_hosts(self):
        options = ("--rdzv-conf", "last_call_timeout=20")
        first = self.elastic(NOTE, *options)
        time.sleep(0.5)
        self.expect([first, self.elastic(NOTE, *options)], 0, 0)
        self.assertEqual([place[0] for place in self.places(0, 2)], ["2", "2"])


class Ssh(HostsTest):
    """A program in the place of ssh runs the command on this host, as sshd would: by a shell, in another folder, with
    few variables."""

    PRETENDER = """#!/usr/bin/env python3
import json, os, subprocess, sys
open(os.environ["FOLDER"] + "/ssh." + sys.argv[-2], "w").write(json.dumps(sys.argv[1:]))
sys.exit(subprocess.call(["sh", "-c", sys.argv[-1]], cwd="/", env={"PATH": "/usr/bin:/bin", "HOME": "/"}))
"""

    def setUp(self):
        super().setUp()
        self.ssh = self.folder / "a ssh"
        self.ssh.write_text(self.PRETENDER)
        self.ssh.chmod(0o755)

    def run_on(self, hostfile, script, *options, **variables):
        (self.folder / "hosts").write_text(hostfile)
        return self.launch("--hostfile", self.folder / "hosts", "--main-process-port", self.port, "--ssh-command",
                           f"'{self.ssh}'", *options, "--", "sh", "-c", script, "it's $HOME", 'a "b" $(c)', **variables)

    def test_ranks_start_on_all_hosts(self):
        script = NOTE + 'pwd >"$FOLDER/pwd.$RANK"; echo "$0|$1|$SECRET_TOKEN" >"$FOLDER/words.$RANK"; echo out; echo err >&2'
        job = self.run_on("127.0.0.1 slots=2 # this one\n\nother slots=1\n", script, "--ssh-options", "-p '2 2'",
                          SECRET_TOKEN="not on a command line")
        status = job.process.wait(LIMIT_S)
        output, errors = job.process.communicate()
        self.assertEqual((status, output), (0, "out\n[host 1 (other)] out\n"), errors)
        self.assertEqual(sorted(errors.splitlines()), ["[host 1 (other)] err", "err"])
        ranks = [self.written(f"rank.{rank}.0").split() for rank in range(3)]
        self.assertEqual([rank[:4] for rank in ranks], [["3", "0", "2", "127.0.0.1"], ["3", "1", "2", "127.0.0.1"], ["3", "0", "1", "127.0.0.1"]])
        self.assertEqual(len({rank[5] for rank in ranks}), 1)
        self.assertEqual({self.written(f"pwd.{rank}") for rank in range(3)}, {os.getcwd() + "\n"})
        self.assertEqual({self.written(f"words.{rank}") for rank in range(3)}, {'it\'s $HOME|a "b" $(c)|not on a command line\n'})
        said = json.loads(self.written("ssh.other"))
        self.assertEqual(said, ["-p", "2 2", "other", f"exec '{os.path.realpath(ACCEL)}' host"])

    def test_a_failed_rank_of_another_host(self):
        script = "[ $RANK = 0 ] && exec sleep 60; echo why; exit 6"
        self.expect([self.run_on("127.0.0.1\nother\n", script)], 6,
                    words=[r"\[host 1 \(other\)\] accel launch: rank 1 failed: exit status 6"])

    def test_all_end_when_the_first_launcher_is_killed(self):
        job = self.run_on("127.0.0.1\nother\n", 'echo $$ >"$FOLDER/pid.$RANK"; exec sleep 60')
        ranks = [int(self.written(f"pid.{rank}")) for rank in (0, 1)]
        job.process.kill()
        self.assertTrue(wait_until(lambda: not any(map(is_alive, ranks)), 5))

    def test_a_host_that_ssh_does_not_reach(self):
        for command, word in (("no-such-ssh", "exit status 127"), ("sh -c 'echo denied >&2; exit 255'", r"exit status 255")):
            self.expect([self.run_on("127.0.0.1\nother\n", "exit 0", "--ssh-command", command)], 1,
                        words=[rf"the launcher of host 1 \(other\) was started by {command} and has ended: {word}"])

    def test_wrong_hostfiles(self):
        for hostfile, word in (("", "has no hosts"), ("# nobody", "has no hosts"), ("a\na\n", ":2 has 'a' again"),
                               ("a slots=x\n", ":1 has 'slots=x'; expected lines HOST slots=N"), ("-oProxyCommand=x\n", "expected the name of a host"),
                               ("a\nb slots=0\n", ":2 has 'slots=0'")):
            self.expect([self.run_on(hostfile, "true")], 2, words=[word])
        self.expect([self.run_on("a slots=2\nb slots=2\n", "true", "--num-processes", "3")], 2,
                    words=["--num-processes is 3; expected none, or 4"])
        self.expect([self.run_on("a\nb\n", "true", "--num-machines", "3", "--num-processes", "3")], 2, words=["--num-machines is 3; expected none, or 2"])
        self.expect([self.run_on("127.0.0.1\nb\n", "true", "--ssh-command", "'open")], 2, words=["has a quote that does not end"])


class Places(HostsTest):
    """What batch systems say of the hosts; here a coordinator that is not there is asked for, whose place follows."""

    SLURM = {"SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NODEID": "1", "SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0"}

    def expect_coordinator(self, place, *options, **variables):
        words = f"this host cannot reach the coordinator at {re.escape(place)} within 1 s: Connection refused"
        self.expect([self.launch("--rdzv-timeout", 1, *options, "true", **variables)], 1, words=[words])

    def test_slurm(self):
        for nodes, first in (("127.0.0.[7-8]", "127.0.0.7"), ("127.0.0.9,127.0.0.[1-3]", "127.0.0.9"), ("127.0.[0-1].[5,2]", "127.0.0.5")):
            self.expect_coordinator(f"{first}:20012", **self.SLURM, SLURM_STEP_NODELIST=nodes)
        self.expect_coordinator("127.0.0.7:77", "--main-process-port", 77, **self.SLURM, SLURM_STEP_NODELIST="127.0.0.[7-8]")
        self.expect_coordinator("127.0.0.6:20012", "--main-process-ip", "127.0.0.6", **self.SLURM, SLURM_STEP_NODELIST="a,b")

    # Regression: a list of nodes with two long ranges took seconds and a gigabyte before it was refused.
    def test_lists_of_nodes_that_are_none(self):
        for nodes, word in (("n[3-", "has 'n\\[3-'; expected numbers in brackets"), ("n[]", "expected numbers in brackets"),
                            ("n[5-2]", "has '5-2'; expected N or FIRST-LAST"), ("n[x]", "has 'x'; expected N"),
                            ("n[1-999999999]", "expected at most 65536 nodes"), ("n[1-9999][1-9999]", "has more than 65536")):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.expect([self.launch("true", **self.SLURM, SLURM_STEP_NODELIST=nodes)], 2, words=[word])
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.assertLess(after.ru_utime - before.ru_utime, 1, nodes)  # seconds of processor time

    def test_several_launchers_on_a_host(self):
        variables = dict(self.SLURM, SLURM_STEP_NUM_TASKS="4", SLURM_STEP_NODELIST="a,b")
        self.expect([self.launch("true", **variables)], 2, words=["srun has started 4 launchers on 2 hosts; expected one a host"])
        self.expect([self.launch("true", OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_LOCAL_SIZE="2")], 2,
                    words=["mpirun has started 2 of 2 launchers on this host"])

    def test_hosts_that_stay_unused(self):
        self.expect([self.launch("true", SLURM_NNODES="2", SLURM_JOB_ID="5")], 0, words=["this is one of the 2 hosts of job 5"])

    def test_mpirun(self):
        variables = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
        self.expect_coordinator("127.0.0.3:29500", MASTER_ADDR="127.0.0.3", **variables)
        self.expect([self.launch("true", **variables)], 2, words=["the address of host 0 is not known"])
        self.expect_coordinator("127.0.0.3:29500", MASTER_ADDR="127.0.0.3", PMI_SIZE="2", PMI_RANK="1", MPI_LOCALNRANKS="1")

    def test_kubernetes(self):
        self.expect_coordinator("127.0.0.3:24", PET_NNODES="2", PET_NODE_RANK="1", PET_MASTER_ADDR="127.0.0.3", PET_MASTER_PORT="24",
                                PET_NPROC_PER_NODE="auto", RANK="1", WORLD_SIZE="2", MASTER_ADDR="other", MASTER_PORT="1")
        self.expect_coordinator("127.0.0.4:29500", "--num-machines", 2, "--num-processes", 2, JOB_COMPLETION_INDEX="1", MASTER_ADDR="127.0.0.4")
        self.expect([self.launch("true", JOB_COMPLETION_INDEX="1")], 0)
        self.expect([self.launch("true", PET_NNODES="two")], 2, words=["PET_NNODES is 'two'; expected N or MIN:MAX"])

    def test_torchrun(self):
        place = {"TORCHELASTIC_RUN_ID": "x", "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "there"}
        self.expect([self.launch("sh", "-c", 'echo $RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR >"$FOLDER/place"', **place)], 0)
        self.assertEqual(self.written("place"), "3 4 1 there\n")
        self.expect([self.launch("--num-processes", 2, "true", **place)], 2, words=["torchrun has started this as rank 3 of 4, and --num-processes is 2"])

    def test_mpirun_hostfile(self):
        """Programs in the place of those of Open MPI and Intel MPI."""
        for says, expected in (("mpirun (Open MPI) 4", "--hostfile hosts --npernode 2 -n 4 --bind-to socket -x MASTER_ADDR -x MASTER_PORT"),
                               ("Intel(R) MPI Library", "-f hosts -ppn 2 -n 4")):
            (self.folder / "mpirun").write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{says}" && exit\necho "$@" $MASTER_ADDR $MASTER_PORT >"$FOLDER/words"\n')
            (self.folder / "mpirun").chmod(0o755)
            self.expect([self.launch("--mpirun-hostfile", "hosts", "--num-machines", 2, "--num-processes", 4, "--main-process-ip", "h", "./program",
                                     "--cpu", PATH=f"{self.folder}:{os.environ['PATH']}")], 0)
            self.assertEqual(self.written("words"), f"{expected} ./program --cpu h 29500\n")
        self.expect([self.launch("--mpirun-hostfile", "hosts", "/bin/true", PATH="/nowhere")], 127, words=["neither mpirun nor mpiexec is in PATH"])


class Strangers(HostsTest):
    """What connects to the coordinator and is not a launcher of the job does not get in, and keeps nobody out."""

    def start_first(self, *options):
        host = self.host(0, NOTE, "--rdzv-timeout", "60", *options)
        self.assertTrue(wait_until(self.can_connect, 10))
        return host

    def can_connect(self):
        try:
            self.connect().close()
            return True
        except OSError:
            return False

    def connect(self):
        connection = socket.create_connection(("127.0.0.1", self.port), 10)
        self.addCleanup(connection.close)
        connection.settimeout(10)
        return connection

    def secret_options(self, secret=SECRET):
        path = self.folder / f"secret{len(secret)}"
        path.write_text(secret)
        path.chmod(0o600)
        return ("--secret-file", path)

    @staticmethod
    def read_all(connection):
        received = b""
        try:
            while block := connection.recv(4096):
                received += block
        except ConnectionError:
            pass
        return received.decode()

    def test_what_is_no_launcher(self):
        host = self.start_first()
        for words in (b"\0" * 100, b"GET / HTTP/1.1\r\n\r\n", b"{}\n", b"[1]\n", b'{"type":"hello"}\n', b"x" * 100000,
                      b'{"type":"answer","protocol":1,"nonce":"1","secret":false}\n', os.urandom(5000) + b"\n",
                      b'{"type":"run","attempt":0}\n'):
            connection = self.connect()
            try:
                connection.sendall(words)
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            self.assertNotIn("welcome", self.read_all(connection))
        self.expect([host, self.host(1, NOTE)], 0, 0, words=["turned away 127.0.0.1"])

    def test_a_wrong_protocol(self):
        host = self.start_first()
        connection = self.connect()
        connection.sendall(b'{"type":"answer","protocol":99,"nonce":"0123456789abcdef","secret":false}\n')
        self.assertIn("its protocol is 99; expected 1, that of accel", self.read_all(connection))
        self.expect([host, self.host(1, NOTE)], 0, 0)

    def test_floods_of_connections_that_say_nothing(self):
        host = self.start_first()
        flood = [self.connect() for _ in range(300)]
        self.expect([host, self.host(1, NOTE)], 0, 0)
        self.assertEqual(len(flood), 300)

    def test_both_must_know_the_secret(self):
        host = self.start_first(*self.secret_options())
        for options, word in (((), "this job has a secret"), (self.secret_options("another bad secret"), "see whether it has the same secret")):
            self.expect([self.host(1, NOTE, *options)], 1, words=[word])
        self.expect([host, self.host(1, NOTE, *self.secret_options())], 0, 0)
        token = self.written("rank.1.0").split()[5]
        self.assertEqual(self.written("rank.0.0").split()[5], token)
        self.assertEqual(len(token), 64)

    def answer(self, connection, secret, hello):
        """Says what a launcher with this secret says."""
        challenge = json.loads(connection.makefile().readline())
        nonce = "0123456789abcdef"
        key = hmac.new(secret.encode(), f"agent {challenge['nonce']} {nonce}".encode(), hashlib.sha256).hexdigest()
        code = hmac.new(key.encode(), f"0 {hello}".encode(), hashlib.sha256).hexdigest()
        first = json.dumps({"type": "answer", "protocol": 1, "nonce": nonce, "secret": True})
        return f"{first}\n{code} {hello}\n".encode()

    def test_answers_that_are_repeated_or_changed(self):
        host = self.start_first(*self.secret_options())
        version = subprocess.run([ACCEL, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
        hello = json.dumps({"type": "hello", "name": "other", "version": version, "program": "sh", "local_processes": 1,
                            "num_processes": 2, "machine_rank": 7, "clock_ms": int(time.time() * 1000)})
        right = self.connect()
        lines = self.answer(right, SECRET, hello)
        right.sendall(lines)
        # It knows the secret: what is wrong is its number.
        self.assertIn("its machine rank is 7", self.read_all(right))
        for changed in (lines, lines.replace(b'"machine_rank": 7', b'"machine_rank": 1')):
            again = self.connect()
            again.sendall(changed)
            self.assertIn("its secret is not that of this job", self.read_all(again))
        self.expect([host, self.host(1, NOTE, *self.secret_options())], 0, 0)

    def test_a_coordinator_without_the_secret_gets_nothing(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", self.port))
            listener.listen()
            host = self.host(1, "exit 3", *self.secret_options())
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b'{"type":"challenge","protocol":1,"nonce":"0123456789abcdef","secret":true}\n')
                connection.sendall(b'{"type":"welcome"}\n{"type":"run"}\n')
                self.expect([host], 1, words=["what answers at .* is not the coordinator of this job: a message has no code"])
                self.assertNotIn(SECRET, self.read_all(connection))

    def test_sockets_are_bound_to_the_interface(self):
        host = self.start_first("--interface", "lo")
        with open("/proc/net/tcp", encoding="ascii") as table:
            listening = [line.split()[1] for line in table if line.split()[3] == "0A"]
        own = [address for address in listening if int(address.split(":")[1], 16) == self.port]
        self.assertEqual(own, [f"0100007F:{self.port:04X}"])
        script = NOTE + 'echo $UCX_NET_DEVICES $NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME >"$FOLDER/devices"'
        self.expect([host, self.host(1, script, "--interface", "127.0.0.1", NCCL_SOCKET_IFNAME="eth7")], 0, 0)
        self.assertEqual(self.written("devices"), "lo eth7 lo\n")

    def test_one_host_listens_nowhere(self):
        job = self.launch("--num-processes", 2, "--max-restarts", 1, "--", "sh", "-c",
                          'ls -l /proc/$PPID/fd >"$FOLDER/fds.$RANK"; grep -c . /proc/$PPID/net/tcp >/dev/null')
        self.expect([job], 0)
        inodes = re.findall(r"socket:\[(\d+)\]", self.written("fds.0"))
        with open("/proc/net/tcp", encoding="ascii") as table:
            self.assertFalse([line for line in table if line.split()[9] in inodes])


if __name__ == "__main__":
    ACCEL = os.path.abspath(sys.argv.pop(1))
    unittest.main()
