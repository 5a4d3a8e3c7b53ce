#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Live metrics over HTTP: what a scraper reads, and clients that misbehave.

usage: metrics_test.py PATH_OF_OBSERVED_PROGRAM [unittest argument ...]
"""

import http.client
import re
import socket
import subprocess
import sys
import threading
import time
import unittest

PROGRAM = ""
SECONDS = 30
SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*",?)*)\} '
                    r"(NaN|[+-]Inf|-?[0-9.]+(?:e[+-]?[0-9]+)?)")


def parse(text):
    """The samples of text format 0.0.4, by name and labels; fails for a line that the format does not have."""
    types, helps, samples = {}, set(), {}
    if not text.endswith("\n"):
        raise AssertionError("the last line has no end")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            helps.add(line.split(" ")[2])
        elif line.startswith("# TYPE "):
            name, kind = line.split(" ")[2:]
            if name in types or kind not in ("counter", "gauge"):
                raise AssertionError(line)
            types[name] = kind
        else:
            match = SAMPLE.fullmatch(line)
            if match is None or match[1] not in types or match[1] not in helps:
                raise AssertionError(line)
            labels = tuple(sorted(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2])))
            if (match[1], labels) in samples:
                raise AssertionError("twice: " + line)
            samples[match[1], labels] = float(match[3])
    return samples


class Served:
    def __init__(self, case, port=0):
        self.process = subprocess.Popen([PROGRAM, "serve", str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1)
        case.addCleanup(self.end)
        self.first = self.process.stdout.readline().strip()
        self.port = int(self.first) if self.first.isdigit() else None

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait(SECONDS)
        for stream in (self.process.stdin, self.process.stdout):
            stream.close()

    def get(self, path="/metrics", method="GET", host=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request(method, path, headers={} if host is None else {"Host": host})
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type"), answer.read().decode()
        finally:
            connection.close()


def is_closed(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


class MetricsTest(unittest.TestCase):
    def test_every_line_can_be_read(self):
        served = Served(self)
        status, kind, text = served.get()
        self.assertEqual((status, kind), (200, "text/plain; version=0.0.4; charset=utf-8"))
        samples = parse(text)
        self.assertEqual(samples["accel_steps_total", (("rank", "0"),)], 0)
        self.assertGreater(samples["accel_memory_bytes", (("kind", "resident"), ("rank", "0"))], 1e6)
        for part in ("data", "forward", "backward", "communication", "optimizer", "other"):
            self.assertIn(("accel_step_seconds", (("part", part), ("rank", "0"))), samples)
        self.assertEqual(served.say("step"), "step")
        self.assertEqual(parse(served.get()[2])["accel_scalar", (("name", "loss"), ("rank", "0"))], 1.5)

    def test_only_what_there_is(self):
        served = Served(self)
        self.assertEqual(served.get("/")[0], 404)
        self.assertEqual(served.get("/metrics?x=1")[0], 200)
        self.assertEqual(served.get("/metrics/..%2f..%2fetc/passwd")[0], 404)
        self.assertIn(served.get(method="POST")[0], (405, 501))
        self.assertEqual(served.get("/" + "x" * 100000)[0] // 100, 4)

    def test_other_sites_are_refused(self):
        served = Served(self)
        for host in ("evil.example", "127.0.0.1.evil.example", "", "localhost.evil.example:80"):
            self.assertEqual(served.get(host=host)[0] // 100, 4, host)
        for host in ("localhost", f"localhost:{served.port}", "127.0.0.1", "[::1]:80", "LOCALHOST"):
            self.assertEqual(served.get(host=host)[0], 200, host)

    def test_a_slow_client_holds_up_nobody_and_is_ended(self):
        served = Served(self)
        with socket.create_connection(("127.0.0.1", served.port), timeout=SECONDS) as slow:
            slow.sendall(b"GET /metr")
            began = time.monotonic()
            self.assertEqual(served.get()[0], 200)
            self.assertLess(time.monotonic() - began, 5)
            while time.monotonic() - began < SECONDS:
                try:
                    slow.sendall(b"x")
                    slow.settimeout(0.5)
                    if not slow.recv(4096):
                        break
                except socket.timeout:
                    continue
                except OSError:
                    break
            self.assertLess(time.monotonic() - began, 15)

    def test_many_clients_at_a_time(self):
        served = Served(self)
        answers = []

        def client():
            for _ in range(20):
                try:
                    answers.append(served.get()[0])
                except OSError:
                    answers.append("refused")
        threads = [threading.Thread(target=client) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(answers, [200] * 160)

    def test_too_many_connections_are_closed(self):
        served = Served(self)
        idle = [socket.create_connection(("127.0.0.1", served.port), timeout=SECONDS) for _ in range(40)]
        try:
            deadline, closed = time.monotonic() + 5, set()
            while len(closed) < 24 and time.monotonic() < deadline:
                for connection in idle:
                    connection.setblocking(False)
                    try:
                        if connection.recv(1) == b"":
                            closed.add(connection)
                    except BlockingIOError:
                        pass
                    except OSError:
                        closed.add(connection)
                time.sleep(0.02)
            self.assertEqual(len(closed), 24)
        finally:
            for connection in idle:
                connection.close()
        deadline = time.monotonic() + 5  # and then there is room again
        while time.monotonic() < deadline:
            try:
                if served.get()[0] == 200:
                    return
            except OSError:
                time.sleep(0.05)
        self.fail("no room after the others had left")

    def test_a_port_that_is_in_use(self):
        served = Served(self)
        other = Served(self, served.port)
        self.assertRegex(other.first, rf"cannot listen at 127.0.0.1:{served.port}: Address already in use")
        self.assertEqual(served.get()[0], 200)

    def test_it_moves_and_ends(self):
        served = Served(self)
        former = served.port
        served.port = int(served.say("again"))
        self.assertNotEqual(former, served.port)
        self.assertTrue(is_closed(former))
        self.assertEqual(served.get()[0], 200)
        self.assertEqual(served.say("release"), "released")
        self.assertTrue(is_closed(served.port))


if __name__ == "__main__":
    PROGRAM = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
