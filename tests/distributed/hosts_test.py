#!/usr/bin/env python3
"""Two hosts with two ranks each, on one machine: hosts_test.py RANK_PROGRAM

A host is a network namespace, and ACCEL_HOST_ID keeps its ranks from seeing the other host's memory. The link between
them is a TUN device in each, and a thread that carries packets from one to the other: it can delay, lose and cut, also
on kernels without netem. Needs root and /dev/net/tun; without them nothing is tested (77: skipped).
"""

import collections
import ctypes
import fcntl
import os
import random
import select
import signal
import struct
import subprocess
import sys
import threading
import time

from looping_ranks import LATE_MS, LoopingRanks
from run_ranks import expect_ends, fail, shared_memory, start_directly

SKIPPED = 77
RANKS = 4
CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN_NO_PI = 0x1001
PACKET = 65535


class Host:
    """A network namespace that lives as long as its file is open: it needs no name, and no end of this program leaves
    it behind."""

    def __init__(self, number):
        self.number = number
        self.address = f"10.83.0.{number + 1}"
        self.device = f"link{number}"
        libc = ctypes.CDLL(None, use_errno=True)
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            if libc.unshare(CLONE_NEWNET) != 0:
                raise PermissionError(ctypes.get_errno(), "no network namespace can be made")
            self.namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
            self.link = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(self.link, TUNSETIFF, struct.pack("16sH22x", self.device.encode(), IFF_TUN_NO_PI))
            address = f"addr add {self.address}/24 dev {self.device}"
            for command in (address, f"link set {self.device} up", "link set lo up"):
                subprocess.run(["ip", *command.split()], check=True)
        finally:
            libc.setns(own, CLONE_NEWNET)
            os.close(own)

    def close(self):
        os.close(self.link)
        os.close(self.namespace)


class Link(threading.Thread):
    """Carries packets between two hosts; `delay_s` each way, `loss` is the part that gets lost."""

    def __init__(self, hosts, delay_s=0.0, loss=0.0):
        super().__init__(daemon=True)
        self.ends = [host.link for host in hosts]
        self.delay_s, self.loss = delay_s, loss
        self.chance = random.Random(1)
        self.under_way = collections.deque()
        self.is_cut = threading.Event()
        self.ended = threading.Event()
        self.start()

    def run(self):
        while not self.ended.is_set():
            wait = 0.05
            if self.under_way:
                wait = max(0.0, self.under_way[0][0] - time.monotonic())
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

    def close(self):
        self.ended.set()
        self.join()


class Network:
    """Two hosts and their link, as a context."""

    def __init__(self, **link):
        self.hosts = [Host(0), Host(1)]
        self.link = Link(self.hosts, **link)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.link.close()
        for host in self.hosts:
            host.close()

    def command_prefix(self, rank):
        """Two ranks on each host, the first ones on the first. UCX reads /sys, which belongs to a namespace, too."""
        host = self.hosts[rank // 2]
        variables = {"ACCEL_HOST_ID": host.number, "LOCAL_RANK": rank % 2, "LOCAL_WORLD_SIZE": 2, "UCX_TLS": "tcp,self",
                     "MASTER_ADDR": self.hosts[0].address, "MASTER_PORT": 29500}
        enter = ["nsenter", f"--net=/proc/{os.getpid()}/fd/{host.namespace}", "unshare", "--mount"]
        return [*enter, "sh", "-c", 'mount -t sysfs none /sys && exec "$@"', "sh", "env",
                *(f"{name}={value}" for name, value in variables.items())]

    def run(self, program, *arguments):
        ranks = start_directly(program, RANKS, *arguments, prefix=self.command_prefix)
        expect_ends(ranks, {rank: 0 for rank in range(RANKS)}, " ".join(arguments))


def other_host(rank):
    return [peer for peer in range(RANKS) if peer // 2 != rank // 2]


def good_link(program):
    with Network() as network:
        network.run(program, "collectives", "7")
        network.run(program, "collectives", "65537")
        network.run(program, "objects")
        network.run(program, "ddp")


def bad_link(program):
    with Network(delay_s=0.02, loss=0.01) as network:
        network.run(program, "collectives", "1025")
        network.run(program, "objects")
        network.run(program, "ddp")


def cut_link(program):
    """Whoever waits for the other host says so at its deadline; who waits for its neighbour may hear it from there."""
    with Network() as network, LoopingRanks(program, RANKS, "until_silent", prefix=network.command_prefix) as ranks:
        network.link.is_cut.set()
        statuses = {"ACCEL_ERROR_TIMEOUT", "ACCEL_ERROR_PEER_LOST", "ACCEL_ERROR_CANCELLED"}
        ranks.expect_failure(range(RANKS), statuses, other_host, LATE_MS)


def unreachable_host(program):
    """Nothing refuses the connection; it just gets no answer."""
    with Network() as network:
        network.link.is_cut.set()
        ranks = start_directly(program, RANKS, "until_silent", prefix=network.command_prefix, stderr=subprocess.PIPE,
                               text=True)
        expect_ends(ranks, {rank: 1 for rank in range(RANKS)}, "ranks on hosts that cannot reach each other")
        for rank, expected in ((0, "2, 3;"), (2, "cannot reach rank 0"), (3, "cannot reach rank 0")):
            errors = ranks[rank].communicate()[1]
            if expected not in errors:
                fail(f"rank {rank} says {errors!r}; expected {expected!r}")


def main():
    if len(sys.argv) != 2:
        fail(__doc__.splitlines()[0])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    try:
        Network().__exit__()
    except OSError as error:
        print(f"no hosts can be made here: {error}")
        sys.exit(SKIPPED)
    before = shared_memory()
    for test in (good_link, bad_link, cut_link, unreachable_host):
        start = time.monotonic()
        test(sys.argv[1])
        print(f"{test.__name__}: {time.monotonic() - start:.1f} s", flush=True)
    left = shared_memory() - before
    if left:
        fail(f"left in /dev/shm: {sorted(left)}")


if __name__ == "__main__":
    main()
