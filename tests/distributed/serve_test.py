# SPDX-License-Identifier: Apache-2.0
"""`accel run`, `accel embed` and `accel serve` with tiny models: streams, requests at a time, limits, clients that leave, and the end.

usage: serve_test.py ACCEL [TEST ...]
"""

import base64
import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import served_folders

SECONDS = 60
JSON = {"Content-Type": "application/json"}


class ModelsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.llama = served_folders.write_llama(pathlib.Path(cls.folder.name) / "llama")
        cls.gguf = served_folders.write_gguf_llama(pathlib.Path(cls.folder.name) / "llama.gguf")
        cls.bert = served_folders.write_bert(pathlib.Path(cls.folder.name) / "bert")

    def accel(self, *arguments, text=None):
        done = subprocess.run([ACCEL, *map(str, arguments)], input=text, text=True, encoding="utf-8", errors="replace", capture_output=True,
                              timeout=SECONDS)
        return done.returncode, done.stdout, done.stderr


class Served:
    """A server of a model, on a free port."""

    def __init__(self, test, folder, *options):
        self.process = subprocess.Popen([ACCEL, "serve", str(folder), "--port", "0", *options], text=True, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        test.addCleanup(self.end)
        line = self.process.stdout.readline()
        test.assertRegex(line, r"^http://127\.0\.0\.1:\d+/v1\n$")
        self.port = int(line.split(":")[2].split("/")[0])

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(SECONDS)

    @contextlib.contextmanager
    def asked(self, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            data = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
            connection.request("GET" if body is None else "POST", path, data, JSON if headers is None else headers)
            yield connection.getresponse()
        finally:
            connection.close()

    def ask(self, path, body=None, headers=None):
        with self.asked(path, body, headers) as answer:
            return answer.status, json.loads(answer.read())

    def events(self, path, body):
        with self.asked(path, {**body, "stream": True}) as answer:
            assert answer.status == 200 and answer.getheader("Content-Type") == "text/event-stream", answer.read()
            events = answer.read().decode().split("\n\n")
        assert events[-1] == "" and all(event.startswith("data: ") for event in events[:-1]), events
        return [event[len("data: "):] for event in events[:-1]]


def text_of(events):
    return "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1])


class RunTest(ModelsTest):
    def test_streams_text_and_tells_the_speed(self):
        status, text, notes = self.accel("run", self.llama, "--prompt", "Hello", "--max-tokens", "12", "--stop", "never")
        self.assertEqual(status, 0, notes)
        self.assertGreater(len(text), 0)
        self.assertRegex(notes, r"1?\d tokens after 5 of the prompt: first after [\d.]+ s, all [\d.]+ tokens/s")
        self.assertEqual(self.accel("run", "--max_tokens=12", self.llama, "--prompt", "-", text="Hello")[1], text)
        drawn = [self.accel("run", self.llama, "--prompt", "Hello", "--temperature", "1", "--seed", seed)[1] for seed in "112"]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])

    def test_asks_by_the_template(self):
        chat = self.accel("run", self.llama, "--prompt", "Hi", "--system", "Be kind.", "--chat", "--max-tokens", "8")
        plain = self.accel("run", self.llama, "--prompt", "system: Be kind.\nuser: Hi\nassistant: ", "--max-tokens", "8")
        self.assertEqual(chat[:2], plain[:2])

    def test_a_gguf_file_gives_the_text_of_its_folder(self):
        for options in (("--prompt", "Hello"), ("--prompt", "Grüße", "--max-tokens", "7", "--dtype", "float32"), ("--chat", "--prompt", "Hi")):
            with self.subTest(options=options):
                status, text, notes = self.accel("run", self.gguf, *options)
                self.assertEqual(status, 0, notes)
                self.assertEqual(text, self.accel("run", self.llama, *options)[1])

    def test_refuses_what_it_cannot_run(self):
        for arguments, words in [((), "no folder is given"), ((self.llama,), "no --prompt"), ((self.llama, "--prompt", "x", "y"), "'y' is given"),
                                 ((self.llama, "--prompt", "x", "--system", "y"), "--chat"), ((self.bert, "--prompt", "x"), "accel embed"),
                                 (("/missing", "--prompt", "x"), "'/missing' is neither a folder nor a GGUF file"),
                                 (("/missing.gguf", "--prompt", "x"), "/missing.gguf"), ((self.gguf, "--prompt", "x" * 5000), "4096"),
                                 ((self.llama, "--prompt", "x" * 5000), "4096"), ((self.llama, "--prompt", "x", "--top-p", "2"), "top-p"),
                                 ((self.llama, "--prompt", "x", "--dtype", "float33"), "float33")]:
            status, text, error = self.accel("run", *arguments)
            self.assertGreater(status, 0, arguments)
            self.assertIn(words, error, arguments)
            self.assertEqual((text, error.count("\n")), ("", 1))

    def test_says_what_a_folder_lacks(self):
        folder = served_folders.write_llama(pathlib.Path(self.folder.name) / "incomplete")
        for name, words in (("tokenizer.json", "save_pretrained"), ("config.json", "hub")):
            (folder / name).rename(folder / "away")
            error = self.accel("run", folder, "--prompt", "x")[2]
            self.assertIn(f"has no {name}", error)
            self.assertIn(words, error)
            (folder / "away").rename(folder / name)
        for name, content, words in (("config.json", "[1]", "config.json"), ("tokenizer.json", "{", "tokenizer.json"),
                                     ("model.safetensors", "", "model.safetensors")):
            whole = (folder / name).read_bytes()
            (folder / name).write_text(content)
            status, _, error = self.accel("run", folder, "--prompt", "x")
            self.assertGreater(status, 0, name)
            self.assertIn(words, error)
            (folder / name).write_bytes(whole)


class EmbedTest(ModelsTest):
    def test_refuses_a_gguf_file(self):
        status, _, error = self.accel("embed", self.gguf, text="abc")
        self.assertGreater(status, 0)
        self.assertIn("a GGUF file is read as a decoder", error)

    def embeddings(self, text, *options):
        status, lines, error = self.accel("embed", self.bert, *options, text=text)
        self.assertEqual(status, 0, error)
        return [json.loads(line) for line in lines.splitlines()]

    def test_one_line_for_each(self):
        rows = self.embeddings("abc\n\nabc def\r\nabc")
        self.assertEqual([row["text"] for row in rows], ["abc", "", "abc def", "abc"])
        self.assertEqual(rows[0]["embedding"], rows[3]["embedding"])
        for row in rows:
            self.assertEqual(len(row["embedding"]), 16)
            self.assertAlmostEqual(sum(x * x for x in row["embedding"]), 1, 4)
        for one, other in zip(rows, self.embeddings("abc\n\nabc def\r\nabc", "--batch-size", "1")):
            for x, y in zip(one["embedding"], other["embedding"]):
                self.assertAlmostEqual(x, y, 5)
        file = pathlib.Path(self.folder.name) / "lines.txt"
        file.write_text("abc\n")
        self.assertEqual(self.embeddings(None, str(file))[0]["text"], "abc")
        self.assertEqual(self.embeddings(""), [])

    def test_pools_as_the_folder_says(self):
        mean = self.embeddings("abc def")[0]["embedding"]
        pooling = self.bert / "1_Pooling"
        pooling.mkdir()
        (pooling / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}))
        self.assertNotEqual(self.embeddings("abc def")[0]["embedding"], mean)
        (pooling / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}))
        self.assertIn("expected one", self.accel("embed", self.bert, text="abc")[2])
        (pooling / "config.json").unlink()
        pooling.rmdir()

    def test_long_lines_are_errors_or_cut(self):
        status, _, error = self.accel("embed", self.bert, text="ab\n" + "abc " * 30)
        self.assertGreater(status, 0)
        self.assertIn("text 1 has 92 tokens; expected at most 24", error)
        self.assertEqual(len(self.embeddings("ab\n" + "abc " * 30, "--truncate")), 2)
        self.assertIn("accel run takes decoders", self.accel("embed", self.llama, text="")[2])


class ServeTest(ModelsTest):
    def test_answers_completions(self):
        served = Served(self, self.llama)
        request = {"model": "llama", "prompt": "Hello", "max_tokens": 8, "temperature": 0}
        status, answer = served.ask("/v1/completions", request)
        self.assertEqual(status, 200, answer)
        self.assertEqual((answer["object"], answer["model"]), ("text_completion", "llama"))
        self.assertIn(answer["choices"][0]["finish_reason"], ("stop", "length"))
        self.assertEqual(answer["usage"]["prompt_tokens"], 5)
        text = answer["choices"][0]["text"]
        self.assertEqual(text, self.accel("run", self.llama, "--prompt", "Hello", "--max-tokens", "8")[1])
        events = served.events("/v1/completions", {**request, "stream_options": {"include_usage": True}})
        self.assertEqual(events[-1], "[DONE]")
        self.assertEqual(json.loads(events[-2])["usage"], answer["usage"])
        self.assertEqual(text_of(events[:-2] + events[-1:]), text)
        self.assertEqual(served.ask("/v1/completions", {**request, "prompt": list(b"Hello")})[1]["choices"][0]["text"], text)

    def test_ends_at_strings_and_gives_log_probabilities(self):
        served = Served(self, self.llama)
        request = {"prompt": "Hello", "max_tokens": 60, "temperature": 1, "seed": 5, "logprobs": 0}
        whole = served.ask("/v1/completions", request)[1]["choices"][0]
        scores = whole["logprobs"]
        self.assertTrue(all(score <= 0 for score in scores["token_logprobs"]))
        self.assertEqual(len(scores["tokens"]), len(scores["token_logprobs"]))
        letters = [letter for letter in whole["text"] if letter.isprintable() and letter != "\ufffd"]
        stop = letters[len(letters) // 2]
        cut = served.ask("/v1/completions", {**request, "stop": [stop]})[1]["choices"][0]
        self.assertEqual((cut["text"], cut["finish_reason"]), (whole["text"].split(stop)[0], "stop"))
        self.assertEqual(text_of(served.events("/v1/completions", {**request, "stop": stop})), cut["text"])

    def test_serves_a_gguf_file(self):
        served = Served(self, self.gguf)
        self.assertEqual(served.ask("/v1/models")[1]["data"][0]["id"], "llama.gguf")
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6, "temperature": 0}
        answers = [server.ask("/v1/chat/completions", body) for server in (served, Served(self, self.llama))]
        self.assertEqual([status for status, _ in answers], [200, 200], answers)
        self.assertEqual(*(answer["choices"] for _, answer in answers))

    def test_answers_chats(self):
        served = Served(self, self.llama, "--name", "tiny")
        request = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_completion_tokens": 8, "temperature": 0}
        status, answer = served.ask("/v1/chat/completions", request)
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["choices"][0]["message"]["role"], "assistant")
        plain = served.ask("/v1/completions", {"prompt": "user: Hi\nassistant: ", "max_tokens": 8, "temperature": 0})[1]
        self.assertEqual(answer["choices"][0]["message"]["content"], plain["choices"][0]["text"])
        events = [json.loads(event) for event in served.events("/v1/chat/completions", request)[:-1]]
        self.assertEqual(events[0]["choices"][0]["delta"]["role"], "assistant")
        self.assertEqual("".join(event["choices"][0]["delta"].get("content", "") for event in events), answer["choices"][0]["message"]["content"])
        self.assertEqual(events[-1]["choices"][0]["delta"], {})
        self.assertEqual(events[-1]["choices"][0]["finish_reason"], answer["choices"][0]["finish_reason"])

    def test_requests_at_a_time_get_what_they_get_alone(self):
        served = Served(self, self.llama, "--max-sequences", "4")
        requests = [{"prompt": "Hello " * (1 + i % 5), "max_tokens": 10 + 7 * (i % 4), "temperature": i % 2, "seed": i} for i in range(16)]
        alone = [served.ask("/v1/completions", request)[1]["choices"][0]["text"] for request in requests]

        def ask(index):
            if index % 3 == 0:
                return text_of(served.events("/v1/completions", requests[index]))
            return served.ask("/v1/completions", requests[index])[1]["choices"][0]["text"]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            together = list(pool.map(ask, range(16)))
        self.assertEqual(together, alone)

    def test_gives_embeddings(self):
        served = Served(self, self.bert)
        status, answer = served.ask("/v1/embeddings", {"input": ["abc", "def"]})
        self.assertEqual(status, 200, answer)
        self.assertEqual([row["index"] for row in answer["data"]], [0, 1])
        self.assertEqual(answer["usage"]["prompt_tokens"], 10)
        packed = served.ask("/v1/embeddings", {"input": "abc", "encoding_format": "base64"})[1]["data"][0]["embedding"]
        for x, y in zip(struct.unpack("<16f", base64.b64decode(packed)), answer["data"][0]["embedding"]):
            self.assertAlmostEqual(x, y, 5)
        self.assertEqual(served.ask("/v1/embeddings", {"input": [2, 4, 3]})[0], 200)
        self.assertEqual(served.ask("/v1/embeddings", {"input": "abc " * 30})[0], 400)
        self.assertEqual(served.ask("/v1/embeddings", {"input": "abc", "dimensions": 8})[1]["error"]["param"], "dimensions")
        self.assertEqual(served.ask("/v1/completions", {"prompt": "abc"})[0], 404)
        self.assertEqual(served.stop(), 0)

    def test_tells_about_itself(self):
        served = Served(self, self.llama)
        self.assertEqual(served.ask("/health"), (200, {"status": "ok"}))
        self.assertEqual([model["id"] for model in served.ask("/v1/models")[1]["data"]], ["llama"])
        self.assertEqual(served.ask("/v1/models/llama")[1]["object"], "model")
        for path in ("/", "/v1", "/v1/models/other", "/v1/completions"):
            self.assertEqual(served.ask(path)[0], 404, path)

    def test_refuses_wrong_requests(self):
        served = Served(self, self.llama, "--max-tokens", "50", "--max-body-bytes", "5000", "--max-cached-tokens", "256")
        for path, body, status, field in [
                ("/v1/completions", "{", 400, None), ("/v1/completions", {}, 400, "prompt"),
                ("/v1/completions", {"prompt": "x", "temperature": "a"}, 400, "temperature"),
                ("/v1/completions", {"prompt": "x", "max_tokens": 51}, 400, "max_tokens"),
                ("/v1/completions", {"prompt": "x", "model": "other"}, 404, "model"),
                ("/v1/completions", {"prompt": "x" * 300}, 400, None), ("/v1/completions", {"prompt": ""}, 400, None),
                ("/v1/completions", {"prompt": [100000]}, 400, None),
                ("/v1/chat/completions", {"messages": []}, 400, "messages"), ("/v1/other", {}, 404, None),
                ("/v1/embeddings", {"input": "x"}, 404, None), ("/v1/completions", "x" * 5001, 413, None)]:
            with served.asked(path, body) as answer:
                text = answer.read().decode()
                self.assertEqual(answer.status, status, (body, text))
            if status != 413:
                self.assertEqual(json.loads(text)["error"]["param"], field, body)
        self.assertEqual(served.ask("/v1/completions", "{}", {"Content-Type": "text/plain"})[0], 415)
        self.assertEqual(served.ask("/v1/models", headers={"Host": "127.0.0.1"})[0], 200)
        with served.asked("/v1/models", headers={"Host": "evil.example"}) as answer:
            self.assertEqual(answer.status, 403)
        self.assertEqual(served.ask("/v1/completions", {"prompt": "x"})[0], 200)

    def long_request(self, served, tokens=4000):
        """A client that has begun to read a stream which goes on for long."""
        client = socket.create_connection(("127.0.0.1", served.port), timeout=SECONDS)
        self.addCleanup(client.close)
        body = json.dumps({"prompt": "Hello", "max_tokens": tokens, "stream": True, "temperature": 1, "seed": 1, "top_k": 20})
        client.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
                       .encode())
        received = b""
        while b"data: " not in received:
            received += client.recv(4096)
        return client

    def test_a_client_that_leaves_makes_room(self):
        served = Served(self, self.llama, "--max-requests", "1")
        client = self.long_request(served)
        with served.asked("/v1/completions", {"prompt": "x"}) as answer:
            self.assertEqual((answer.status, answer.getheader("Retry-After")), (429, "1"))
            self.assertEqual(json.loads(answer.read())["error"]["type"], "rate_limit_error")
        client.close()
        deadline = time.monotonic() + 5
        while served.ask("/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 429:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_slow_clients_are_ended(self):
        served = Served(self, self.llama, "--client-timeout", "1")
        with socket.create_connection(("127.0.0.1", served.port), timeout=SECONDS) as slow:
            slow.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n")
            began = time.monotonic()
            self.assertIn(b" 408 ", slow.recv(4096))
            self.assertLess(time.monotonic() - began, 10)

    def test_finishes_answers_and_refuses_new_ones(self):
        served = Served(self, self.llama, "--stop-timeout", "150")
        client = self.long_request(served, 1500)
        served.process.send_signal(signal.SIGTERM)
        self.assertIn("stopping", served.process.stderr.readline())
        status = served.ask("/v1/completions", {"prompt": "x"})[0]
        self.assertEqual((status, served.ask("/health")[0]), (503, 503))
        received = b""
        while part := client.recv(65536):
            received += part
        self.assertTrue(received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), received[-200:])
        self.assertEqual(served.process.wait(SECONDS), 0)

    def test_ends_answers_that_take_too_long(self):
        for options, signals in ((["--stop-timeout", "0"], 1), ([], 2)):
            served = Served(self, self.llama, *options)
            self.long_request(served)
            for _ in range(signals):
                served.process.send_signal(signal.SIGINT)
                time.sleep(0.1)
            self.assertEqual(served.process.wait(20), 0)
            self.assertIn("cut off", served.process.stderr.read())

    def test_refuses_addresses_that_cannot_be(self):
        served = Served(self, self.llama)
        status, _, error = self.accel("serve", self.llama, "--port", served.port)
        self.assertGreater(status, 0)
        self.assertIn(f"cannot listen at 127.0.0.1:{served.port}", error)


if __name__ == "__main__":
    ACCEL = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
