#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two hosts with two ranks each, on one machine.

usage: two_hosts.py [--delay-ms N] [--rate RATE] PROGRAM [ARGUMENT ...]

A host is a network namespace, and ACCEL_HOST_ID keeps its ranks from seeing the other host's memory. The link between
them is a pair of virtual Ethernet devices (veth), which netem makes slow and lossy. Where the kernel lacks one of these,
it is a TUN device in each host, and a thread that carries packets from one to the other, late or not at all. Needs root.
"""

import argparse
import collections
import ctypes
import fcntl
import os
import random
import select
import struct
import subprocess
import sys
import tempfile
import threading
import time

from run_ranks import expect_ends, fail, start_directly

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN_NO_PI = 0x1001
PACKET = 65535
UP_WITHIN_S = 10
RANKS = 4


class NoLink(Exception):
    """This machine cannot make what a test needs."""


class Host:
    """A network namespace that lives as long as its file is open: it needs no name, and no end of this program leaves
    it behind."""

    def __init__(self, number, ipv6=False):
        self.number, self.ipv6 = number, ipv6
        self.address = f"fd00:83::{number + 1}" if ipv6 else f"10.83.0.{number + 1}"
        self.device = f"link{number}"
        self.shared_memory = tempfile.TemporaryDirectory(prefix="accel-host-")  # that its ranks see
        libc = ctypes.CDLL(None, use_errno=True)
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            if libc.unshare(CLONE_NEWNET) != 0:
                raise NoLink("no network namespace can be made")
            self.namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        finally:
            libc.setns(own, CLONE_NEWNET)
            os.close(own)

    def path(self):
        return f"/proc/{os.getpid()}/fd/{self.namespace}"

    def run(self, *command):
        """A command in this host, and what it says; its failure is an OSError."""
        done = subprocess.run(["nsenter", f"--net={self.path()}", *command], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise OSError(f"{' '.join(command)}: {done.stdout.strip()}")
        return done.stdout

    def start_device(self):
        # No other host could have the address of IPv6: it is usable at once (nodad).
        self.run("ip", "addr", "add", f"{self.address}/{64 if self.ipv6 else 24}", "dev", self.device, *(["nodad"] if self.ipv6 else []))
        self.run("ip", "link", "set", self.device, "up")
        self.run("ip", "link", "set", "lo", "up")

    def close(self):
        os.close(self.namespace)
        left = os.listdir(self.shared_memory.name)
        self.shared_memory.cleanup()
        if left:
            fail(f"left in /dev/shm of host {self.number}: {sorted(left)}")


class Cable:
    """A veth pair; `delay_s` each way, `loss` is the part that gets lost, `rate` as tc writes it."""

    def __init__(self, hosts, delay_s=0.0, loss=0.0, rate=None):
        self.hosts = hosts
        first, second = hosts
        first.run("ip", "link", "add", first.device, "type", "veth", "peer", "name", second.device, "netns",
                  second.path())
        try:
            for host in hosts:
                if delay_s or loss:
                    host.run("tc", "qdisc", "add", "dev", host.device, "root", "netem", "delay", f"{delay_s * 1000}ms",
                             "loss", f"{loss * 100}%", *(["rate", rate] if rate else []))
                elif rate:
                    host.run("tc", "qdisc", "add", "dev", host.device, "root", "tbf", "rate", rate, "burst", "256kb",
                             "limit", "4mb")
                host.start_device()
            self.wait_until_up()
        except OSError:
            self.close()
            raise

    def wait_until_up(self):
        """UCX leaves out a device whose other end was not noticed yet."""
        end = time.monotonic() + UP_WITHIN_S
        while not all("state UP" in host.run("ip", "link", "show", host.device) for host in self.hosts):
            if time.monotonic() > end:
                raise OSError(f"the devices were not up within {UP_WITHIN_S} s")
            time.sleep(0.01)

    def cut(self):
        """Both send to a device that is not there, so that neither side hears anything."""
        for host, other in (self.hosts, self.hosts[::-1]):
            host.run("ip", "neigh", "replace", other.address, "lladdr", "02:00:00:00:00:00", "dev", host.device, "nud",
                     "permanent")

    def close(self):
        self.hosts[0].run("ip", "link", "del", self.hosts[0].device)


class Relay(threading.Thread):
    """Carries packets between TUN devices; `delay_s` each way, `loss` is the part that gets lost."""

    def __init__(self, hosts, delay_s=0.0, loss=0.0):
        super().__init__(daemon=True)
        self.ends = [self.make_device(host) for host in hosts]
        self.delay_s, self.loss = delay_s, loss
        self.chance = random.Random(1)
        self.under_way = collections.deque()
        self.is_cut = threading.Event()
        self.ended = threading.Event()
        self.start()

    @staticmethod
    def make_device(host):
        libc = ctypes.CDLL(None, use_errno=True)
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        libc.setns(host.namespace, CLONE_NEWNET)
        try:
            end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", host.device.encode(), IFF_TUN_NO_PI))
        finally:
            libc.setns(own, CLONE_NEWNET)
            os.close(own)
        host.start_device()
        return end

    def run(self):
        while not self.ended.is_set():
            wait = 0.05
            if self.under_way:
                wait = min(wait, max(0.0, self.under_way[0][0] - time.monotonic()))
            for end in select.select(self.ends, [], [], wait)[0]:
                self.take(end)
            while self.under_way and self.under_way[0][0] <= time.monotonic():
                self.put(*self.under_way.popleft()[1:])

    def take(self, end):
        packet = os.read(end, PACKET)
        if self.chance.random() >= self.loss:
            self.under_way.append((time.monotonic() + self.delay_s, self.ends[1 - self.ends.index(end)], packet))

    def put(self, end, packet):
        if not self.is_cut.is_set():
            try:
                os.write(end, packet)
            except OSError:  # the device's queue is full: this one is lost, too
                pass

    def cut(self):
        self.is_cut.set()

    def close(self):
        self.ended.set()
        self.join()
        for end in self.ends:
            os.close(end)


def make_link(hosts, **quality):
    try:
        return Cable(hosts, **quality)
    except OSError as of_cable:
        if "rate" in quality:
            raise NoLink(str(of_cable)) from None
        try:
            return Relay(hosts, **quality)
        except OSError as of_relay:
            raise NoLink(f"{of_cable}; {of_relay}") from None


class Network:
    """Two hosts and their link, as a context; `ipv6`: they have addresses of IPv6 alone."""

    def __init__(self, ipv6=False, **quality):
        self.hosts = [Host(0, ipv6), Host(1, ipv6)]
        self.link = make_link(self.hosts, **quality)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.link.close()
        for host in self.hosts:
            host.close()

    def enter(self, number, also="true"):
        """What runs the rest of its line in a host. UCX reads /sys, which belongs to a namespace, too. `also` is a
        command of the shell that prepares more of it."""
        host = self.hosts[number]
        mount = f'mount -t sysfs none /sys && mount --bind "$1" /dev/shm && {also} && shift && exec "$@"'
        return ["nsenter", f"--net={host.path()}", "unshare", "--mount", "sh", "-c", mount, "sh", host.shared_memory.name,
                "env", f"ACCEL_HOST_ID={number}", "UCX_TLS=tcp,self"]

    def command_prefix(self, rank):
        """Two ranks on each host, the first ones on the first."""
        host = self.hosts[rank // 2]
        variables = {"LOCAL_RANK": rank % 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": self.hosts[0].address,
                     "MASTER_PORT": 29500}
        return [*self.enter(host.number), *(f"{name}={value}" for name, value in variables.items())]

    def run(self, program, *arguments):
        ranks = start_directly(program, RANKS, *arguments, prefix=self.command_prefix)
        expect_ends(ranks, {rank: 0 for rank in range(RANKS)}, " ".join(arguments))


def main():
    options = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].splitlines()[0])
    options.add_argument("--delay-ms", type=float, default=0.0)
    options.add_argument("--rate")
    options.add_argument("command", nargs=argparse.REMAINDER)
    given = options.parse_args()
    if not given.command:
        options.error("which program?")
    quality = {"delay_s": given.delay_ms / 1000}
    if given.rate:
        quality["rate"] = given.rate
    try:
        with Network(**quality) as network:
            network.run(*given.command)
    except NoLink as error:
        sys.exit(f"two hosts cannot be made here: {error}")


if __name__ == "__main__":
    main()
