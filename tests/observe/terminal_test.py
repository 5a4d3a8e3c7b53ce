#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Progress bars on a terminal, of which the test is the screen.

usage: terminal_test.py PATH_OF_OBSERVED_PROGRAM [unittest argument ...]
"""

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import unittest

PROGRAM = ""
SECONDS = 30


class Screen:
    """What stands on a terminal of so many columns after what was written to it: enough of a VT100 for progress bars."""

    def __init__(self, columns):
        self.columns, self.rows, self.row, self.column = columns, [""], 0, 0

    def write(self, text):
        for part in re.findall(r"\x1b\[\d*[A-Z]|\x1b|[^\x1b]", text, re.DOTALL):
            if part == "\r":
                self.column = 0
            elif part == "\n":
                self.row += 1
                self.column = 0  # the terminal driver adds the return
                if self.row == len(self.rows):
                    self.rows.append("")
            elif part.startswith("\x1b["):
                self.command(part[-1], int(part[2:-1] or "1"))
            elif part == "\x1b":
                raise AssertionError("an escape of no known kind in " + repr(text))
            else:
                self.put(part)

    def resize(self, columns):
        """What does not fit any more goes on in the next row, as most terminals have it."""
        self.columns = columns
        self.rows = [row[i:i + columns] for row in self.rows for i in range(0, max(len(row), 1), columns)]
        self.row = len(self.rows) - 1
        self.column = len(self.rows[-1])

    def put(self, character):
        if self.column == self.columns:
            self.write("\n")
        row = self.rows[self.row].ljust(self.column)
        self.rows[self.row] = row[:self.column] + character + row[self.column + 1:]
        self.column += 1

    def command(self, kind, number):
        if kind == "A":
            if number > self.row:
                raise AssertionError("above the first row")
            self.row -= number
        elif kind == "J":
            self.rows[self.row] = self.rows[self.row][:self.column]
            del self.rows[self.row + 1:]
        else:
            raise AssertionError("no command of progress bars: " + kind)


class Terminal:
    def __init__(self, arguments, columns, **variables):
        self.screen = Screen(columns)
        self.text = self.cut = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        environment = {**os.environ, "TERM": "xterm", "LC_ALL": "C", **variables}
        self.master, self.slave = pty.openpty()
        self.resize(columns)
        self.process = subprocess.Popen([PROGRAM, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=self.slave, env=environment)
        os.close(self.slave)

    def resize(self, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read(self, until=lambda text: False):
        end = time.monotonic() + SECONDS
        while not until(self.text):
            if time.monotonic() > end:
                raise AssertionError("the program does not end: " + self.text)
            if not select.select([self.master], [], [], 1)[0]:
                continue
            if not self.read_some():
                break

    def read_some(self):
        try:
            got = os.read(self.master, 65536)
        except OSError:  # the other end is closed
            got = b""
        text = self.cut + self.decoder.decode(got)
        # A read can end in the middle of a character, an escape or the end of a line.
        whole = re.sub(r"(\r|\x1b(\[\d*)?)\Z", "", text) if got else text
        self.cut = text[len(whole):]
        whole = whole.replace("\r\n", "\n")
        self.text += whole
        self.screen.write(whole)
        return bool(got)

    def end(self, case):
        self.read()
        said = self.process.communicate(timeout=SECONDS)[0].decode()
        os.close(self.master)
        case.assertEqual(self.process.returncode, 0, said + self.text)


class TerminalTest(unittest.TestCase):
    def run_on_terminal(self, *arguments, columns=100, **variables):
        terminal = Terminal(arguments, columns, **variables)
        terminal.end(self)
        return terminal

    def test_several_bars_stay_in_their_lines(self):
        terminal = self.run_on_terminal("bars")
        rows = [row.rstrip() for row in terminal.screen.rows]
        self.assertEqual(len(rows), 6, rows)
        self.assertRegex(rows[0], r"^\d{4}-\d\d-\d\dT\S+Z INFO \[rank 0\] test: half of it$")
        self.assertEqual(rows[1], "    is done")
        self.assertRegex(rows[2], r"^inner: 40 steps \[00:0\d, \S+ steps/s, loss 0.125, memory \d+ MB\]$")
        self.assertRegex(rows[3], r"^outer: 100% \|#+\| 4/4 \[00:0\d<00:00, \S+ steps/s\]$")
        self.assertRegex(rows[4], r" WARNING \[rank 0\] test: the end$")
        self.assertEqual(rows[5], "")
        self.assertNotIn("passing", "".join(rows))
        self.assertIn("passing", terminal.text)

    def test_blocks_where_the_terminal_has_them(self):
        self.assertIn("█", self.run_on_terminal("bars", LC_ALL="de_DE.UTF-8").text)
        self.assertNotIn("█", self.run_on_terminal("bars", LC_ALL="C").text)

    def test_lines_fit_into_a_narrow_terminal(self):
        rows = self.run_on_terminal("bars", columns=30).screen.rows
        self.assertTrue(all(len(row) < 30 or "test:" in row or row.startswith(("20", "g", " ")) for row in rows), rows)
        self.assertEqual(sum(row.startswith(("inner", "outer")) for row in rows), 2, rows)

    def test_a_terminal_that_becomes_narrower(self):
        terminal = Terminal(["sleep", "600"], 120)
        terminal.read(lambda text: "5/100" in text)
        terminal.process.send_signal(signal.SIGSTOP)
        os.waitpid(terminal.process.pid, os.WUNTRACED)
        while select.select([terminal.master], [], [], 0)[0]:
            terminal.read_some()
        terminal.resize(40)
        terminal.screen.resize(40)
        terminal.process.send_signal(signal.SIGCONT)
        terminal.end(self)
        rows = terminal.screen.rows
        self.assertEqual(len(rows), 2, rows)
        self.assertRegex(rows[0], r"^a label .*\d+/100 \[00:0\d<00:0")
        self.assertLess(len(rows[0]), 40)
        self.assertEqual(rows[1], "")

    def test_a_loader_moves_its_bar(self):
        terminal = self.run_on_terminal("loader")
        for epoch in (0, 1):
            for count in (1, 2, 3):
                self.assertRegex(terminal.text, rf"train epoch {epoch}: +\d+% \|[# ]+\| {count}/3 ")
        self.assertEqual([row.split(" [")[0].split("|")[0] for row in terminal.screen.rows if row],
                         ["train epoch 1: 100% "])

    def test_nothing_where_there_is_no_terminal(self):
        result = subprocess.run([PROGRAM, "sleep", "50"], capture_output=True, timeout=SECONDS, check=True)
        self.assertEqual((result.stdout, result.stderr), (b"", b""))
        self.assertEqual(self.run_on_terminal("sleep", "50", TERM="dumb").text, "")

    def test_a_terminal_that_is_gone_does_not_stop_the_program(self):
        terminal = Terminal(["sleep", "300"], 80)
        terminal.read(lambda text: "5/100" in text)
        os.close(terminal.master)
        said = terminal.process.communicate(timeout=SECONDS)[0]
        self.assertEqual(terminal.process.returncode, 0, said)


if __name__ == "__main__":
    PROGRAM = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
