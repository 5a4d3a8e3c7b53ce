#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command `accel report`: what it reads and refuses, the page as a browser shows it, and the page that is served.

usage: report_page_test.py PATH_OF_ACCEL [unittest argument ...]
"""

import http.client
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.request

import browser
from written_run import WrittenRun, trace, training

ACCEL = ""
SECONDS = 60
HOSTILE = "</script><img src=x onerror=\"document.title='taken over'\">"
needs_browser = unittest.skipIf(browser.CHROMIUM is None, "there is no chromium; tools/setup.sh --develop installs it")


class ReportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="accel-report-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.runs = self.folder / "runs"

    def accel(self, *arguments):
        return subprocess.run([ACCEL, *map(str, arguments)], capture_output=True, text=True, timeout=SECONDS, check=False,
                              stdin=subprocess.DEVNULL, cwd=self.folder)

    def report(self, *folders):
        """Writes the page; returns its path and what was said of problems."""
        page = self.folder / "page.html"
        result = self.accel("report", *(folders or [self.runs]), "--output", page)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, f"{page}\n")
        return page, result.stderr

    def show(self, page, script="", **options):
        """The page in a browser. A script runs after those of the page, in a copy that allows it."""
        if script:
            text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text(), count=1)
            page = self.folder / "changed.html"
            page.write_text(text.replace("</body>", f"<script>{script}</script></body>"))
        document, console = browser.dump(page.as_uri(), **options)
        self.assertEqual(console, [])
        self.assertEqual(document.one(id="errors").text(), "")
        self.assertIsNotNone(document.one(id="errors").attributes.get("hidden"))
        return document

    def chart(self, document, title):
        for figure in document.all("figure", of_class="chart"):
            if figure.one("figcaption").all("span")[0].text() == title:
                return figure
        raise AssertionError(f"there is no chart '{title}'")

    def drawn(self, page, script="", **options):
        """{title: what uPlot draws} of all charts, after a script: "data" are its columns, x first, "shown" the indices inside of the zoom, "scales"
        the ends of both axes, "labels" the labels of y, "marks" the values that are not finite, "ink" how many pixels are not empty."""
        document = self.show(page, script + browser.DRAWN, **options)
        return json.loads(document.one(id="drawn").text()), document

    def expect_refusal(self, status, words, *arguments):
        result = self.accel("report", *arguments)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(result.stderr.splitlines()[-1][:7], "accel: ")
        self.assertIn(words, result.stderr.splitlines()[-1])


class CommandTest(ReportTest):
    def test_says_what_is_wrong(self):
        self.expect_refusal(2, "no folder is given")
        self.expect_refusal(1, "missing' is not a folder", "missing")
        self.runs.mkdir()
        self.expect_refusal(1, "there is nothing to show in 'runs'", "runs")
        (self.runs / "metrics.jsonl").write_bytes(b"")
        self.expect_refusal(1, "nothing could be read in 'runs'", "runs")
        (self.runs / "metrics.jsonl").write_bytes(bytes(range(256)) * 1000)
        self.expect_refusal(1, "nothing could be read in 'runs'", "runs")
        self.expect_refusal(2, "--port is given; expected --live", "runs", "--port", "0")
        self.expect_refusal(2, "--output is given beside --live", "--live", "runs", "--output", "x")
        self.expect_refusal(2, "--interval", "--live", "runs", "--interval", "0")
        self.assertFalse((self.folder / "report.html").exists())

    def test_output_is_replaced_whole_or_stays(self):
        training(self.runs / "a", steps=20)
        output = self.folder / "report.html"
        output.write_text("before")
        self.assertEqual(self.accel("report", "runs").returncode, 0)
        self.assertIn("<!doctype html>", output.read_text())
        self.expect_refusal(1, "", "runs", "--output", "/proc/nothing/report.html")
        (self.folder / "there").mkdir()
        self.expect_refusal(1, "is a folder", "runs", "--output", "there")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["report.html", "runs", "there"])

    def test_options_may_stand_behind_folders(self):
        for name in ("a", "b"):
            WrittenRun(self.runs / name).values(0, loss=1)
        page, _ = self.report(self.runs / "a", self.runs / "b")
        self.assertIn("b", [run["name"] for run in data_of(page)["runs"]])

    def test_damage_is_said_and_not_fatal(self):
        run = WrittenRun(self.runs / "a")
        run.values(0, loss=1)
        with open(run.file, "ab") as file:
            file.write(b"\xff\xfe garbage\n{\"type\":\"values\",\"time\":1,\"step\":1,\"val\n[1]\n")
        run.values(1, loss=2)
        with open(run.file, "ab") as file:
            file.write(b'{"type":"values","ti')
        (self.runs / "a/profile_0.json").write_text('{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":1},{"ph"')
        page, said = self.report()
        self.assertEqual([line.split(": ", 3)[2:][0] + ": " + line.split(": ", 3)[3][:20] for line in said.splitlines()],
                         ["metrics.jsonl: 2 damaged lines, the", "metrics.jsonl: 1 lines of another f", "metrics.jsonl: 1 cut-off lines: lin",
                          "profile_0.json: 1 cut-off traces: th"])
        run = data_of(page)["runs"][0]
        self.assertEqual(run["series"][0]["y"], [1, 2])
        self.assertEqual(run["trace"]["num_events"], 1)
        self.assertEqual(len(run["facts"]["problems"]), 4)

    def test_pictures_outside_of_the_run_are_not_embedded(self):
        (self.folder / "secret.png").write_bytes(b"\x89PNG\r\n\x1a\nsecret")
        run = WrittenRun(self.runs / "a")
        (run.folder / "link.png").symlink_to(self.folder / "secret.png")
        for name in ("link.png", "../../secret.png", str(self.folder / "secret.png")):
            run.line("image", step=0, name=name, file=name, width=1, height=1)
        page, _ = self.report()
        for picture in data_of(page)["runs"][0]["pictures"]:
            self.assertNotIn("data", picture)
            self.assertIn("secret.png" if "secret" in picture["name"] else "symbolic link", picture["reason"])

    def test_runs_of_one_name_are_told_apart(self):
        for group in ("x", "y"):
            WrittenRun(self.runs / group / "run").values(0, loss=1)
        page, _ = self.report()
        self.assertEqual([run["name"] for run in data_of(page)["runs"]], ["x/run", "y/run"])

    def test_a_large_file_takes_little_memory(self):
        run = WrittenRun(self.runs / "a")
        line = json.dumps({"type": "values", "time": 1.0, "step": 7, "values": {"note": "x" * 100000}}) + "\n"
        with open(run.file, "w", encoding="utf-8") as file:
            for _ in range(3000):
                file.write(line)  # 300 MB
        script = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
                  "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
        used = subprocess.run([sys.executable, "-c", script, ACCEL, "report", self.runs, "--output", self.folder / "page.html"],
                              capture_output=True, text=True, check=True, timeout=SECONDS)
        self.assertLess(int(used.stdout), 60000)


def data_of(page):
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page.read_text(), re.DOTALL).group(1))


@needs_browser
class PageTest(ReportTest):
    def test_shows_a_training(self):
        training(self.runs / "baseline")
        trace(self.runs / "baseline/profile_merged.json", 4)
        page, said = self.report()
        self.assertEqual(said, "")
        document = self.show(page)
        self.assertEqual([heading.text() for heading in document.all("h2")],
                         ["Overview", "Curves", "Throughput", "Where the time goes", "Memory", "Histograms", "Images and figures",
                          "Tables and texts", "Traces", "Configuration and environment"])
        self.assertEqual(document.all("title")[0].text(), "baseline - accel report")
        # The curves, and the same as text.
        loss = self.chart(document, "loss")
        drawn, _ = self.drawn(page)
        x, values = drawn["loss"]["data"]
        self.assertEqual(x, list(range(0, 400, 2)))
        self.assertGreater(values[0], values[-1])
        self.assertEqual(drawn["loss"]["shown"], [0, 199])
        self.assertGreater(drawn["loss"]["ink"], 500)
        self.assertGreater(len(drawn["loss"]["labels"]), 3)
        self.assertEqual(drawn["loss"]["color"], "#2563eb")
        self.assertEqual(loss.one("table").rows()[0][0].strip(), "baseline")
        self.assertEqual(loss.one("table").rows()[0][4], "398")
        self.assertIn("baseline: latest", loss.one("div", role="img")["aria-label"])
        self.chart(document, "train/lr")
        # Who is slow, and why.
        time = document.one("section", id="time")
        self.assertIn("The slowest rank is rank 2 (node2), in 20 of 20 reports. Communication that nothing hides takes 22 % of a step.", time.text())
        self.assertEqual(len(time.all("rect", of_class="segment")), 4 * 6)
        self.assertEqual([row[0] for row in time.one("table").rows()], [f"rank {rank} (node{rank // 2 + 1})" for rank in range(4)])
        self.assertEqual(time.one("table").rows()[2][4], "44 ms")
        self.assertEqual(len(drawn["resident"]["data"]), 1 + 4)
        self.assertEqual(len(drawn["tokens per second, all ranks"]["data"]), 1 + 1)
        # What was logged beside numbers.
        self.assertEqual(len(document.one("section", id="histograms").all("rect", of_class="bin")), 40)
        (image,) = document.one("section", id="images").all("img")
        self.assertTrue(image["src"].startswith("data:image/png;base64,"))
        texts = document.one("section", id="tables")
        self.assertEqual(texts.all("table")[0].rows(), [["to be", "1", "0.93"], ["or not", "0", "0.12"]])
        self.assertIn("to be or not to be", texts.text())
        settings = document.one("section", id="configuration").all("table")
        self.assertIn(["optimizer/lr", "0.0003"], settings[0].rows())
        self.assertIn(["torch", "2.13.0"], settings[1].rows())
        # The traces.
        traces = document.one("section", id="traces")
        operators = [table for table in traces.all("table") if "Operators by self time" in table.text()][0].rows()
        self.assertEqual([(row[0], row[1], row[2], row[4]) for row in operators],
                         [("aten::addmm", "20", "40 ms", "40 ms"), ("aten::linear", "20", "20 ms", "60 ms")])
        times = [row for row in traces.all("table")[0].rows() if row[:2] == ["0", "collective"]]
        self.assertEqual(times, [["0", "collective", "5", "12.5 ms", "20 MiB"]])
        spans = traces.all("rect", of_class="span")
        self.assertEqual(len(spans), 4 * 3 * 8)
        self.assertIn("all_reduce (collective): 2.5 ms at 9 ms, 4 MiB", [span.text() for span in spans])
        self.assertIn("ui.perfetto.dev", traces.text())

    def test_compares_runs(self):
        training(self.runs / "slow", steps=60)
        training(self.runs / "fast", steps=60, rate=1e-3, seed=2)
        page, _ = self.report()
        drawn, document = self.drawn(page)
        self.assertEqual(len(drawn["loss"]["data"]), 1 + 2)
        settings, metrics = document.one("section", id="comparison").all("table")
        self.assertEqual(settings.rows(), [["optimizer/lr", "0.001", "0.0003"], ["seed", "2", "1"]])
        self.assertEqual([cell.text().strip() for cell in settings.all("th", scope="col")], ["setting", "fast", "slow"])
        self.assertIn("loss", [row[0] for row in metrics.rows()])
        # One of them alone: the other is hidden by its box.
        drawn, document = self.drawn(page, "byId('runs').querySelectorAll('input')[1].click();")
        self.assertEqual(len(drawn["loss"]["data"]), 1 + 1)
        self.assertEqual(self.chart(document, "loss").one("table").rows()[0][0].strip(), "fast")
        self.assertEqual(len(document.one("section", id="comparison").all("table")), 0)

    def test_whatever_files_say_is_text(self):
        run = WrittenRun(self.runs / "<b>bold<", begin=0)
        run.line("run", project=HOSTILE, run=HOSTILE, host=HOSTILE, pid=1, rank=0, world_size=1, version=HOSTILE, resumed=False,
                 environment={HOSTILE: HOSTILE})
        run.line("config", values={HOSTILE: HOSTILE, "__proto__": {"polluted": 1}})
        run.values(0, **{HOSTILE: 1.0, "note": HOSTILE, "__proto__": 2.0, "constructor": 3.0, "x/" + HOSTILE: 1})
        run.line("table", step=0, name=HOSTILE, columns=[HOSTILE], rows=[[HOSTILE]])
        run.line("histogram", step=0, name=HOSTILE, min=0, max=1, count=1, sum=1, edges=[0, 1], counts=[1])
        run.line("image", step=0, name=HOSTILE, file=HOSTILE, width=1, height=1)
        run.line("artifact", name=HOSTILE, file="javascript:alert(1)")
        run.line("step_report", step=0, ranks=[{"rank": 0, "host": HOSTILE, "seconds": {HOSTILE: 1, "data": 1}, "memory": {HOSTILE: 1}}], slowest_rank=0)
        run.line(HOSTILE)
        trace(run.folder / "profile_0.json", 1, name_of_operator=HOSTILE)
        page, said = self.report()
        self.assertIn("is not known", said)
        document = self.show(page)
        self.assertEqual(document.all("title")[0].text(), "<b>bold< - accel report")
        self.assertEqual(document.all("img"), [])
        self.assertEqual(document.all("b", **{"class": None})[0].text(), "<b>bold<")
        self.assertEqual(len(document.all("script")), 2)
        self.assertEqual([figure.one("figcaption").all("span")[0].text() for figure in document.one("section", id="curves").all("figure")].count(HOSTILE), 1)
        for section in ("curves", "time", "memory", "histograms", "images", "tables", "traces", "configuration", "problems"):
            self.assertIn(HOSTILE, document.one("section", id=section).text(), section)

    def test_values_of_any_size(self):
        run = WrittenRun(self.runs / "a")
        for step, value in enumerate([1.0, "NaN", 1e308, -1e308, "Infinity", "-Infinity", 5e-324, 0, 2]):
            run.values(step, step, all=value, alone=1e300, negative=-step, none="NaN")
        with open(run.file, "a", encoding="utf-8") as file:
            file.write('{"type":"values","time":1e300,"step":1e300,"values":{"all":1e999}}\n')
        page, said = self.report()
        self.assertEqual(said, "")
        for script in ("", "byId('log-scale').click();", "byId('smoothing').value = 0.6; byId('smoothing').dispatchEvent(new Event('input'));",
                       "byId('x-axis').value = 'time'; byId('x-axis').dispatchEvent(new Event('change'));"):
            drawn, _ = self.drawn(page, script)
            self.assertEqual(len([value for value in drawn["all"]["data"][1] if value is not None]), 4 if "log" in script else 6)
            for chart in drawn.values():
                self.assertTrue(all(isinstance(edge, (int, float)) for edge in chart["scales"]), chart["scales"])
            self.assertEqual(drawn["all"]["marks"], ["NaN", "Infinity", "-Infinity", "Infinity"])

    def test_a_resumed_run_counts_by_its_later_values(self):
        run = WrittenRun(self.runs / "a")
        run.start()
        for step in range(10):
            run.values(step, step, loss=100)
        run.start(resumed=True, seconds=20)
        for step in range(5, 8):
            run.values(step, 20 + step, loss=step)
        document = self.show(self.report()[0])
        self.assertEqual(self.chart(document, "loss").one("table").rows()[0][1:], ["7", "5", "100", "9"])
        self.assertIn("1 time", document.one("section", id="overview").text())

    def test_charts_zoom_and_show_values(self):
        training(self.runs / "a", steps=100)
        page, _ = self.report()
        find = "const chart = charts.get('curve loss'), over = chart.plot.over, box = over.getBoundingClientRect(); "
        fire = ("const fire = (type, share) => over.dispatchEvent(new MouseEvent(type, {clientX: box.left + share * box.width, clientY: box.top + 50, "
                "button: 0, movementX: 9, bubbles: true})); ")
        drawn, document = self.drawn(page, find + fire + "fire('mousemove', 0.5);")
        tip = self.chart(document, "loss").one("div", of_class="tip")
        self.assertIsNone(tip.attributes.get("hidden"))
        self.assertEqual(tip.one("strong").text(), "48")
        self.assertRegex(tip.text(), r"^48a\d\.\d+$")
        self.assertEqual(drawn["loss"]["shown"], [0, 49])
        drag = "fire('mousemove', 0.25); fire('mousedown', 0.25); fire('mousemove', 0.5); fire('mouseup', 0.5); "
        drawn, document = self.drawn(page, find + fire + drag)
        first, last = drawn["loss"]["shown"]
        self.assertTrue(10 <= last - first <= 16, drawn["loss"]["shown"])
        self.assertIsNone(self.chart(document, "loss").one("button").attributes.get("hidden"))
        drawn, document = self.drawn(page, find + fire + drag + "setTimeout(() => fire('dblclick', 0.5), 10);")
        self.assertEqual(drawn["loss"]["shown"], [0, 49])
        self.assertIsNotNone(self.chart(document, "loss").one("button").attributes.get("hidden"))
        key = "const key = name => chart.holder.dispatchEvent(new KeyboardEvent('keydown', {key: name})); "
        document = self.show(page, find + key + "key('ArrowRight'); key('ArrowRight');")
        self.assertEqual(self.chart(document, "loss").one("div", of_class="tip").one("strong").text(), "2")
        drawn, _ = self.drawn(page, find + key + "key('+'); key('+');")
        first, last = drawn["loss"]["shown"]
        self.assertTrue(10 <= last - first <= 16, drawn["loss"]["shown"])
        drawn, _ = self.drawn(page, find + key + "key('+'); key('+'); key('Escape');")
        self.assertEqual(drawn["loss"]["shown"], [0, 49])

    def test_a_zoom_stays_where_values_come_and_settings_change(self):
        training(self.runs / "a", steps=100)
        page, _ = self.report()
        drawn, _ = self.drawn(page, "charts.get('curve loss').zoomTo([20, 40]); setTheme(false); drawCharts(); byId('log-scale').click(); byId('theme').click();")
        self.assertEqual(drawn["loss"]["scales"][:2], [20, 40])
        self.assertEqual(drawn["loss"]["color"], "#6b9bff")  # of the dark theme

    def test_smoothing_and_log_scale(self):
        run = WrittenRun(self.runs / "a")
        for step in range(100):
            run.values(step, step, loss=10.0 ** (step % 2 * 4))
        page, _ = self.report()
        heights = lambda values: max(values[50:]) - min(values[50:])
        plain, _ = self.drawn(page)
        smoothed, _ = self.drawn(page, "byId('smoothing').value = 0.9; byId('smoothing').dispatchEvent(new Event('input'));")
        _, raw, smooth = smoothed["loss"]["data"]
        self.assertEqual(raw, plain["loss"]["data"][1])
        self.assertLess(heights(smooth), heights(raw))
        drawn, _ = self.drawn(page, "byId('log-scale').click();")
        self.assertEqual(drawn["loss"]["labels"], ["1", "10", "100", "1000", "10000"])

    def test_many_points_are_reduced_with_their_peaks(self):
        run = WrittenRun(self.runs / "a")
        with open(run.file, "w", encoding="utf-8") as file:
            for step in range(150000):
                file.write(f'{{"type":"values","time":{step},"step":{step},"values":{{"loss":{50 if step == 77777 else step % 3}}}}}\n')
        page, _ = self.report()
        self.assertLess(page.stat().st_size, 2e6)
        drawn, document = self.drawn(page, budget=8000)
        self.assertRegex(document.one(id="state").text(), r"The page shows (99,\d{3}|100,000) of 150,000 points: the minimum and maximum of each interval")
        self.assertEqual(self.chart(document, "loss").one("table").rows()[0][3], "50")
        self.assertIn("reduced", self.chart(document, "loss").one("small").text())
        self.assertEqual(drawn["loss"]["data"][1].count(50), 1)
        self.assertGreater(drawn["loss"]["scales"][3], 50)

    def test_narrow_and_empty(self):
        WrittenRun(self.runs / "a").start()
        document = self.show(self.report()[0], width=320)
        self.assertEqual([heading.text() for heading in document.all("h2")], ["Overview", "Configuration and environment"])


class LiveTest(ReportTest):
    def serve(self, *options):
        server = subprocess.Popen([ACCEL, "report", "--live", str(self.runs), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.stderr.close)
        self.addCleanup(server.wait, SECONDS)
        self.addCleanup(server.kill)
        address = server.stdout.readline().strip()
        self.assertRegex(address, r"^http://127\.0\.0\.1:\d+/$", server.poll() is not None and server.stderr.read())
        return server, address

    def get(self, address, path="", **headers):
        with urllib.request.urlopen(urllib.request.Request(address + path, headers=headers), timeout=SECONDS) as answer:
            return answer, answer.read().decode()

    def status(self, address, method="GET", path="/", **headers):
        connection = http.client.HTTPConnection(address.split("/")[2], timeout=SECONDS)
        connection.request(method, path, headers=headers)
        status = connection.getresponse().status
        connection.close()
        return status

    def test_sends_what_is_new(self):
        run = WrittenRun(self.runs / "a")
        run.start()
        run.values(0, loss=1)
        _, address = self.serve()
        answer, page = self.get(address)
        self.assertIn("data-interval=\"2000\"", page)
        self.assertIn("frame-ancestors 'none'", answer.headers["Content-Security-Policy"])
        self.assertEqual(answer.headers["Cache-Control"], "no-store")
        whole = json.loads(self.get(address, "data?since=0")[1])
        self.assertEqual(whole["runs"][0]["series"][0]["y"], [1])
        nothing = json.loads(self.get(address, f"data?since={whole['version']}")[1])
        self.assertNotIn("series", nothing["runs"][0])
        run.values(1, loss=2)
        self.wait_for_next_look()
        news = json.loads(self.get(address, f"data?since={whole['version']}")[1])
        self.assertEqual(news["runs"][0]["series"][0]["y"], [2])
        self.assertNotIn("facts", news["runs"][0])

    @staticmethod
    def wait_for_next_look():
        threading.Event().wait(0.15)  # the server looks ten times a second at most

    def test_answers_to_itself_alone(self):
        self.runs.mkdir()
        _, address = self.serve()
        self.assertEqual(self.status(address), 200)
        self.assertEqual(self.status(address, Host="localhost:1"), 200)
        for name in ("evil.example", "127.0.0.1.evil.example", ""):
            self.assertEqual(self.status(address, Host=name), 403, name)
            self.assertEqual(self.status(address, path="/data?since=0", Host=name), 403, name)
        for path in ("/../etc/passwd", "/etc/passwd", "/data/", "/%2e%2e/x"):
            self.assertEqual(self.status(address, path=path), 404, path)
        self.assertIn(self.status(address, "POST"), (405, 501))
        self.assertEqual(self.status(address, path="/data?since=-1"), 200)
        self.assertEqual(self.status(address, path="/data?since=99999999999999999999"), 200)
        with socket.create_connection((address.split("/")[2].split(":")[0], int(address.split(":")[2][:-1])), timeout=SECONDS) as raw:
            raw.sendall(b"\xff\x00garbage\r\n\r\n")
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(4096):
                pass
        self.assertEqual(self.status(address), 200)

    def test_ends_in_order(self):
        WrittenRun(self.runs / "a").values(0, loss=1)
        for number in (signal.SIGINT, signal.SIGTERM):
            server, address = self.serve()
            self.assertEqual(self.status(address), 200)
            server.send_signal(number)
            self.assertEqual(server.wait(SECONDS), 0)
            self.assertEqual(server.stderr.read(), "")

    def test_a_port_that_is_taken_is_said(self):
        self.runs.mkdir()
        _, address = self.serve()
        port = address.split(":")[2][:-1]
        self.expect_refusal(1, f"cannot listen at 127.0.0.1:{port}: Address already in use", "--live", self.runs, "--port", port)

    @needs_browser
    def test_the_page_shows_what_is_appended(self):
        run = WrittenRun(self.runs / "first")
        run.start()
        run.values(0, loss=1)
        _, address = self.serve("--interval", "0.2")

        def append():
            for step in range(1, 40):
                run.values(step, step, loss=step, **{"train/new": step})
            later = WrittenRun(self.runs / "second")
            later.start()
            later.values(0, loss=7)
        # Between the browser and the server, so that values are added exactly when the page asks for the first time.
        relay = Relay(address, append)
        self.addCleanup(relay.close)
        document, console = browser.dump(relay.address, budget=6000)
        self.assertEqual(console, [])
        self.assertEqual(document.one(id="errors").text(), "")
        self.assertGreater(relay.asked, 2)
        self.assertEqual([chip.text().strip() for chip in document.one(id="runs").all("label")], ["first", "second"])
        loss = self.chart(document, "loss")
        self.assertEqual([row[0].strip() for row in loss.one("table").rows()], ["first", "second"])
        self.assertEqual(loss.one("table").rows()[0][1:], ["39", "1", "39", "39"])
        self.assertEqual(loss.one("div", role="img")["data-points"], "41")
        self.chart(document, "train/new")
        self.assertIn("Live: updated every 200 ms.", document.one(id="state").text())


class Relay:
    """Passes requests on; before the first one for data, `append` is called and the server's next look is due."""

    def __init__(self, address, append):
        relay = self
        self.asked = 0

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                if self.path.startswith("/data"):
                    relay.asked += 1
                    if relay.asked == 1:
                        append()
                        LiveTest.wait_for_next_look()
                try:
                    with urllib.request.urlopen(address[:-1] + self.path, timeout=SECONDS) as answer:
                        body = answer.read()
                        self.send_response(answer.status)
                        for name in ("Content-Type", "Content-Security-Policy"):
                            self.send_header(name, answer.headers[name])
                except urllib.error.HTTPError as error:
                    body = error.read()
                    self.send_response(error.code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}/"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


if __name__ == "__main__":
    ACCEL = os.path.abspath(sys.argv.pop(1))
    if browser.CHROMIUM is None:
        print("the page is not looked at: there is no chromium; tools/setup.sh --develop installs it", file=sys.stderr)
    unittest.main(verbosity=1)
