#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bin/accel-libtorch against a registry of this process: downloads, interruptions, wrong files, and machines that it refuses."""

import functools
import hashlib
import http.server
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging/assemble"))

import project  # noqa: E402
import tree  # noqa: E402

TORCH = {"torch/lib/libc10.so": "c10", "torch/lib/libtorch_cpu.so": "cpu" * 100000, "torch/lib/libtorch_cuda.so": "not wanted",
         "torch/include/torch/torch.h": "header", "torch-9.9.dist-info/licenses/LICENSE": "licence"}
RUNTIME = {"nvidia/cu13/lib/libcudart.so.13": "cudart"}
CUPTI = {"nvidia/cu13/lib/libcupti.so.13": "cupti"}


class Registry(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, also from a place on, as a download that goes on asks for."""

    def log_message(self, *_):
        pass

    def send_head(self):
        begin = self.headers.get("Range", "").removeprefix("bytes=").removesuffix("-")
        if not begin:
            return super().send_head()
        stream = open(self.translate_path(self.path), "rb")
        size = os.fstat(stream.fileno()).st_size
        stream.seek(int(begin))
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {begin}-{size - 1}/{size}")
        self.send_header("Content-Length", str(size - int(begin)))
        self.end_headers()
        self.server.resumed.append(int(begin))
        return stream


class Fetcher(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.site = self.folder / "site"
        self.site.mkdir()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Registry, directory=self.site))
        self.server.resumed = []
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.tools = self.folder / "tools"
        self.tools.mkdir()
        self.tool("python3", f'[ "$1$2" != -mpip ] || exit 1\nexec {sys.executable} "$@"')  # pip would ask the real registry
        self.packages = {}
        self.wheels = {name: self.publish(name, content) for name, content in
                       (("torch", TORCH), ("nvidia-cuda-runtime", RUNTIME), ("nvidia-cuda-cupti", CUPTI))}
        self.prefix = self.folder / "a prefix with blanks"

    def tool(self, name, script):
        (self.tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.tools / name).chmod(0o755)

    def publish(self, name, content, address="../../files/"):
        wheel = self.site / "files" / f"{name.replace('-', '_')}-9.9-py3-none-manylinux_2_28_x86_64.whl"
        wheel.parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(wheel, "w") as archive:
            for file, text in content.items():
                archive.writestr(file, text)
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        self.packages[name] = ("9.9", digest, wheel.stat().st_size)
        page = self.site / "simple" / name / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(f'<a href="{address}other.whl#sha256={"0" * 64}">other</a><br/><a href="{address}{wheel.name}#sha256={digest}">it</a>')
        return wheel

    def run_script(self, *arguments, **environment):
        program = self.prefix / "bin/accel-libtorch"
        program.parent.mkdir(parents=True, exist_ok=True)
        before, tree.libtorch_packages = tree.libtorch_packages, lambda: self.packages
        try:
            program.write_text(tree.fetcher((2, 31)).replace(f"version={project.TORCH_VERSION}", "version=9.9"))
        finally:
            tree.libtorch_packages = before
        program.chmod(0o755)
        settings = {"PATH": f"{self.tools}:/usr/bin:/bin", "HOME": str(self.folder / "home"),
                    "PIP_INDEX_URL": f"http://127.0.0.1:{self.server.server_port}/simple", **environment}
        return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False, env=settings, timeout=60)

    def check_fetched(self, folder):
        self.assertEqual(sorted(file.name for file in (folder / "lib").iterdir()),
                         ["libc10.so", "libcudart.so.13", "libcupti.so.13", "libtorch_cpu.so"])
        self.assertFalse(folder.with_name(folder.name + ".partial").exists())

    def test_downloads_what_is_needed_and_says_so(self):
        done = self.run_script()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"is in {self.prefix}/lib/torch; it took", done.stdout)
        self.check_fetched(self.prefix / "lib/torch")
        again = self.run_script(PIP_INDEX_URL="http://127.0.0.1:9")
        self.assertEqual((again.returncode, again.stdout), (0, f"accel-libtorch: LibTorch 9.9 is in {self.prefix}/lib/torch\n"))

    def test_headers(self):
        self.assertEqual(self.run_script("--headers").returncode, 0)
        self.assertEqual((self.prefix / "lib/torch/include/torch/torch.h").read_text(), "header")

    def test_addresses_of_the_page_may_be_absolute(self):
        for address in ("/files/", f"http://127.0.0.1:{self.server.server_port}/files/"):
            self.publish("torch", TORCH, address)
            folder = self.folder / f"torch{len(address)}"
            self.assertEqual(self.run_script("--folder", folder).returncode, 0)
            self.check_fetched(folder)

    def test_an_interrupted_download_goes_on(self):
        wheel = self.wheels["torch"]
        partial = self.prefix / "lib/torch.partial" / f"torch-9.9-{self.packages['torch'][1]}.whl"
        partial.parent.mkdir(parents=True)
        partial.write_bytes(wheel.read_bytes()[:1000])
        done = self.run_script()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(1000, self.server.resumed)
        self.check_fetched(self.prefix / "lib/torch")

    def test_a_file_with_another_hash_is_refused(self):
        with open(self.wheels["torch"], "ab") as stream:
            stream.write(b"more")
        done = self.run_script()
        self.assertEqual(done.returncode, 1)
        self.assertIn("damaged: its hash is not", done.stderr)
        self.assertFalse((self.prefix / "lib/torch").exists())

    def test_wheels_that_are_here(self):
        named = [word for wheel in self.wheels.values() for word in ("--wheel", wheel)]
        done = self.run_script(*named, PIP_INDEX_URL="http://127.0.0.1:9")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_fetched(self.prefix / "lib/torch")
        done = self.run_script("--folder", self.folder / "other", "--wheel", self.wheels["torch"], PIP_INDEX_URL="http://127.0.0.1:9")
        self.assertIn("none of the wheels that were named is nvidia-cuda-runtime==9.9", done.stderr)

    def test_another_libtorch_is_left_alone(self):
        (self.prefix / "lib/torch/lib").mkdir(parents=True)
        (self.prefix / "lib/torch/lib/libtorch_cpu.so").write_text("of somebody")
        done = self.run_script()
        self.assertEqual((done.returncode, done.stderr), (1, f"accel-libtorch: {self.prefix}/lib/torch has another LibTorch; remove it, or "
                                                             "name another folder by --folder\n"))

    def test_no_network(self):
        done = self.run_script(PIP_INDEX_URL="http://127.0.0.1:9/simple")
        self.assertEqual(done.returncode, 1)
        self.assertIn("connect the network, or name a mirror by PIP_INDEX_URL", done.stderr)

    def test_a_folder_that_cannot_be_written(self):
        done = self.run_script("--folder", "/proc/nothing/torch")
        self.assertEqual(done.returncode, 1)
        self.assertIn("name a folder that you may write by --folder", done.stderr)

    def test_machines_that_are_not_supported(self):
        for tool, script, said in (("ldd", "echo 'musl libc (x86_64)' >&2; exit 1", "musl is not supported: glibc 2.31 or later is"),
                                   ("getconf", "echo glibc 2.28", "glibc 2.28 is too old: expected 2.31 or later"),
                                   ("uname", "echo Linux aarch64", "Linux aarch64 is not supported: Linux on x86_64 is")):
            with self.subTest(tool):
                self.tool(tool, script)
                done = self.run_script()
                self.assertEqual((done.returncode, done.stderr), (1, f"accel-libtorch: {said}\n"))
                (self.tools / tool).unlink()


if __name__ == "__main__":
    if not (shutil.which("curl") or shutil.which("wget")):
        sys.exit(77)
    unittest.main()
