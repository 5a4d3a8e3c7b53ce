#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tools/package.sh and tools/release.sh are made of, on small made-up inputs."""

import base64
import hashlib
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "packaging/assemble"), str(ROOT / "tools")]

import index  # noqa: E402
import release_check  # noqa: E402
from archive import write_tar  # noqa: E402
from crates import add_licenses, licenses_text, linked_crates  # noqa: E402
from julia import tree_hash  # noqa: E402
from project import VERSION  # noqa: E402
from sizes import write_checksums  # noqa: E402
from sources import make_julia_package  # noqa: E402
from tree import PackageError  # noqa: E402
from wheel import write_wheel  # noqa: E402


class MadeUpFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.content = self.folder / "content"
        for name, text in (("lib/libaccel.so.0.1.0", "library"), ("lib.txt", "text"), ("bin/accel", "program"), ("lib/accel/plugin.so", "")):
            file = self.content / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (self.content / "bin/accel").chmod(0o755)
        (self.content / "lib/libaccel.so").symlink_to("libaccel.so.0.1.0")
        (self.content / "empty").mkdir()


class Packages(MadeUpFolder):
    def test_the_hash_of_an_artifact_is_that_of_git(self):
        def git(*command):
            return subprocess.run(["git", "-C", self.content, *command], check=True, capture_output=True, text=True).stdout.strip()

        found = tree_hash(self.content).hex()
        git("init", "--quiet")
        git("add", "--all")
        self.assertEqual(found, git("write-tree"))

    def test_the_same_content_gives_the_same_tarball(self):
        write_tar(self.folder / "a.tar.gz", self.content, "top", 1000)
        os.utime(self.content / "lib.txt", (1, 1))
        write_tar(self.folder / "b.tar.gz", self.content, "top", 1000)
        self.assertEqual((self.folder / "a.tar.gz").read_bytes(), (self.folder / "b.tar.gz").read_bytes())

    # Regression: in Julia, the package that is installed had no tests, so that `Pkg.test()` failed.
    @unittest.skipIf(subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True).returncode, "the sources are not a repository")
    def test_the_package_of_julia_has_its_tests(self):
        artifacts = self.folder / "Artifacts.toml"
        artifacts.touch()
        with tarfile.open(make_julia_package(self.folder, self.folder / "work", artifacts, 1000)) as package:
            names = package.getnames()
        self.assertIn("Accel/test/runtests.jl", names)
        self.assertNotIn("Accel/meson.build", names)

    @unittest.skipIf(sys.version_info < (3, 11), "tools/package.sh needs Python 3.11")
    def test_a_wheel_records_each_file(self):
        wheel = self.folder / f"libaccel-{VERSION}-py3-none-any.whl"
        write_wheel(wheel, self.content, "py3-none-any", 1000)
        with zipfile.ZipFile(wheel) as archive:
            info = f"libaccel-{VERSION}.dist-info"
            rows = [line.split(",") for line in archive.read(f"{info}/RECORD").decode().splitlines()]
            self.assertEqual({row[0] for row in rows}, set(archive.namelist()))
            for name, digest, size in rows[:-1]:
                content = archive.read(name)
                self.assertEqual(int(size), len(content))
                self.assertEqual(digest, "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode())
            self.assertEqual({entry.filename for entry in archive.infolist() if entry.external_attr >> 16 & 0o111}, {"bin/accel"})
            self.assertRegex(archive.read(f"{info}/METADATA").decode(), r"(?s)Name: libaccel\n.*Requires-Dist: torch==\d+\.\d+\.\d+\n")


class ReleaseFolder(MadeUpFolder):
    """The folder that tools/package.sh makes, with files that are made up."""

    def setUp(self):
        super().setUp()
        self.release = self.folder / "release"
        self.release.mkdir()
        names = [f"libaccel-{VERSION}-cp3{minor}-cp3{minor}-manylinux_2_31_x86_64.whl" for minor in (10, 11)]
        names += [f"libaccel-{VERSION}-linux-x86_64.tar.gz", f"libaccel_{VERSION}_amd64.deb", f"Accel-{VERSION}.tar.gz",
                  f"libaccel-julia-{VERSION}-linux-x86_64.tar.gz", "Artifacts.toml",
                  *(f"{crate}-{VERSION}.crate" for crate in ("libaccel", "libaccel-derive", "libaccel-sys"))]
        for name in names:
            (self.release / name).write_text(name)
        self.files = sorted(self.release.iterdir())
        write_checksums(self.release, self.files)

    def links(self):
        index.write_index(self.release)
        return re.findall(r'<a href="([^"]*)">', (self.release / "index.html").read_text())

    def test_the_index_leads_to_each_file(self):
        self.assertEqual(sorted(self.links()), sorted([file.name for file in self.files] + ["SHA256SUMS"]))

    def test_each_command_takes_a_file_of_the_folder(self):
        for heading, text in index.commands().items():
            taken = re.findall(r"(?:Accel-|libaccel[-_])[\w.-]*\.(?:tar\.gz|deb)|--find-links \. libaccel|for crate in [\w -]*;", text)
            for name in taken:
                crates = re.findall(r"libaccel[\w-]*", name) if name.startswith("for crate") else []
                for file in [f"{crate}-{VERSION}.crate" for crate in crates] or [name]:
                    self.assertTrue(file.startswith("--find-links") or (self.release / file).is_file(), f"{heading}: {file}")
            self.assertTrue(taken or heading.startswith("Variables"), heading)

    @unittest.skipIf(sys.version_info < (3, 11), "tools/package.sh needs Python 3.11")
    @unittest.skipUnless(importlib.util.find_spec("pip"), "this Python has no pip")
    def test_pip_finds_the_wheel_by_the_page(self):
        python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
        tag = f"{python}-{python}-manylinux_2_31_x86_64"
        wheel = self.release / f"libaccel-{VERSION}-{tag}.whl"
        write_wheel(wheel, self.content, tag, 1000)
        write_checksums(self.release, sorted({*self.files, wheel}))
        self.links()
        done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check",
                               "--find-links", (self.release / "index.html").as_uri(), "--dest", self.folder / "taken", "libaccel"],
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual([file.name for file in (self.folder / "taken").iterdir()], [wheel.name])

    def test_a_file_that_is_missing_or_changed_is_named(self):
        deb = self.release / f"libaccel_{VERSION}_amd64.deb"
        deb.write_text("changed")
        with self.assertRaisesRegex(index.FolderError, f"{deb.name} has the checksum [0-9a-f]+; SHA256SUMS says "):
            self.links()
        deb.unlink()
        with self.assertRaisesRegex(index.FolderError, f"{deb.name} of SHA256SUMS is missing in "):
            self.links()
        write_checksums(self.release, [file for file in self.files if file != deb])
        with self.assertRaisesRegex(index.FolderError, r"SHA256SUMS has no libaccel_\*\.deb; expected a file for Debian, Ubuntu"):
            self.links()


class Crates(MadeUpFolder):
    """The licences of the crates inside of the plugin for tokenizers."""

    def setUp(self):
        super().setUp()
        self.toolchain = self.folder / "rust"
        for name, text in (("crates/one-1.0/LICENSE-MIT", "MIT of all"), ("crates/one-1.0/src/lib.rs", "code"), ("crates/two-2.0/LICENSE", "MIT of all"),
                           ("crates/two-2.0/library/COPYING", "of C"), ("rust/share/doc/rust/licenses/MIT.txt", "MIT of Rust"),
                           ("rust/share/doc/rust/licenses/Apache-2.0.txt", "Apache")):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(f"{text}\n")

    def test_each_text_is_there_once_with_its_crates(self):
        text = licenses_text(["one-1.0", "two-2.0"], self.folder / "crates", self.toolchain)
        self.assertEqual(text.count("MIT of all"), 1)
        self.assertRegex(text, r"(?s)\none-1.0, two-2.0\n-+\n\nMIT of all\n.*\ntwo-2.0\n-+\n\nof C\n")
        self.assertIn("\nthe standard library of Rust\n", text)
        self.assertNotIn("code", text)

    def test_a_crate_without_a_licence_is_an_error(self):
        with self.assertRaisesRegex(PackageError, "three-3.0, which is in libaccel_tokenizers.so, has no licence in "):
            licenses_text(["one-1.0", "three-3.0"], self.folder / "crates", self.toolchain)

    def test_an_archive_has_the_plugin_with_its_licences(self):
        with self.assertRaisesRegex(PackageError, "libaccel_tokenizers.so was not built"):
            add_licenses(self.content, ["one-1.0"], self.folder / "crates", self.toolchain)
        (self.content / "lib/accel/libaccel_tokenizers.so").touch()
        (self.content / "share/accel/licenses").mkdir(parents=True)
        add_licenses(self.content, ["one-1.0"], self.folder / "crates", self.toolchain)
        self.assertIn("MIT of all", (self.content / "share/accel/licenses/crates.txt").read_text())

    @unittest.skipUnless((ROOT / "build/deps/tokenizer_crates").is_dir() and shutil.which("cargo"), "cargo or the crates are not here")
    def test_all_crates_of_the_plugin_have_a_licence(self):
        crates = linked_crates("cargo")
        self.assertIn("tokenizers", {name.rpartition("-")[0] for name in crates})
        self.assertNotIn("serde_derive", {name.rpartition("-")[0] for name in crates})  # it is not in the plugin
        self.assertIn("K.Kosako", licenses_text(crates, ROOT / "build/deps/tokenizer_crates", self.toolchain))  # of Oniguruma, in C


class Release(unittest.TestCase):
    """On a copy of the files with the version."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for pattern in ("include/accel/error.h", "CHANGELOG.md", *(place[0] for place in release_check.PLACES)):
            for file in ROOT.glob(pattern):
                target = self.root / file.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)

    def change(self, name, old, new):
        text = (self.root / name).read_text()
        self.assertIn(old, text)
        (self.root / name).write_text(text.replace(old, new, 1))

    def test_the_tree_has_one_version(self):
        self.assertEqual(list(release_check.problems(self.root, False)), [])

    def test_each_place_is_looked_at(self):
        for name, old in (("meson.build", f"version: '{VERSION}'"), ("pyproject.toml", f'version = "{VERSION}"'),
                          ("bindings/julia/Project.toml", f'version = "{VERSION}"'), ("bindings/rust/accel/Cargo.toml", f'version = "{VERSION}"'),
                          ("bindings/python/accel/__init__.py", f'__version__ = "{VERSION}"')):
            with self.subTest(name):
                self.change(name, old, old.replace(VERSION, "9.8.7"))
                self.assertEqual(list(release_check.problems(self.root, False)), [f"{name} says version 9.8.7; include/accel says {VERSION}"])
                self.change(name, "9.8.7", VERSION)

    def test_a_changelog_without_the_version(self):
        self.change("CHANGELOG.md", f"## {VERSION} - ", "## 0.0.1 - ")
        self.assertRegex(" ".join(release_check.problems(self.root, False)), f"CHANGELOG.md has no section for {VERSION}")

    def test_a_release_leaves_no_fragments(self):
        subprocess.run(["git", "-C", self.root, "init", "--quiet"], check=True)
        (self.root / "changes").mkdir()
        (self.root / "changes/+loaders.added.md").write_text("Loaders have a deadline.\n")
        self.assertIn("changes/ has +loaders.added.md", " ".join(release_check.problems(self.root, True)))
        self.assertEqual(list(release_check.problems(self.root, False)), [])

    def test_a_release_needs_date_lock_and_a_clean_tree(self):
        subprocess.run(["git", "-C", self.root, "init", "--quiet"], check=True)
        text = (self.root / "CHANGELOG.md").read_text().splitlines()
        heading = next(line for line in text if line.startswith(f"## {VERSION} - "))
        self.change("CHANGELOG.md", heading, f"## {VERSION} - not released")
        found = " ".join(release_check.problems(self.root, True))
        for said in ("expected the date of the release", "tools/release.sh --lock", "files are changed or new"):
            self.assertIn(said, found)


if __name__ == "__main__":
    unittest.main()
