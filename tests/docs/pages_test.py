#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command line and every program on a page of the documentation is run, or names the test that runs it.

usage: pages_test.py ROOT BUILD               whether each block of all pages has its test; commands of the build are rehearsed
       pages_test.py ROOT BUILD PAGE ...      these pages are followed
       pages_test.py ROOT BUILD --tabs c,python PAGE ...   of the tabs for languages only these
       pages_test.py ROOT BUILD --followed    all short pages are followed, and the parts of programs in guides run
"""

import pathlib
import re
import sys
import tempfile
import unittest

import fragments
import guides
import named_tests
import pages
import preparations
from session import Failed, Session, is_alike
from build_commands import NOT_RUN, BuildCommands, command_lines

ROOT, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
TABS, CHOSEN = None, sys.argv[3:]
if CHOSEN[:1] == ["--tabs"]:
    TABS, CHOSEN = CHOSEN[1].split(","), CHOSEN[2:]
FOLLOWED = CHOSEN == ["--followed"]
LONG = ("README.md", "docs/tutorial.md")  # tests of their own


class Pages(unittest.TestCase):
    """All blocks of all pages."""

    @classmethod
    def setUpClass(cls):
        cls.blocks = [block for path in pages.page_paths(ROOT) for block in pages.blocks_of(ROOT, path)]
        cls.build_commands = BuildCommands(ROOT, BUILD)

    def test_languages_are_known(self):
        known = pages.PROGRAMS + pages.COMMANDS + pages.OTHERS
        self.assertEqual([f"{block}: {block.language}" for block in self.blocks if block.language.strip("{}") not in known], [])

    def test_tests_that_are_named_exist(self):
        problems = [f"{block}: {problem}" for block in self.blocks if block.test and (problem := named_tests.missing(ROOT, block.test))]
        self.assertEqual(problems, [])

    def test_tests_that_are_named_run_the_commands(self):
        for block in self.blocks:
            if block.test and block.language in pages.COMMANDS:
                lines = [line for line in command_lines(block.text) if line not in NOT_RUN]
                self.assertEqual(named_tests.lines_that_are_not_in(ROOT, block, lines, self.blocks), [], str(block))

    def test_what_is_not_run_is_on_a_page(self):
        lines = {line for block in self.blocks if block.language in pages.COMMANDS for line in command_lines(block.text)}
        self.assertEqual([line for line in NOT_RUN if line not in lines], [])
        for line, reason in NOT_RUN.items():
            print(f"not run: {line} ({reason})")

    def test_programs_have_a_test(self):
        for block in self.blocks:
            if block.language in pages.PROGRAMS and not block.test and not block.name:
                with self.subTest(str(block)):
                    problem = fragments.problem(block, ROOT)
                    self.assertFalse(problem, problem)

    # Regression: the page about development started tests with several ranks without the plugin that they load.
    def test_commands_of_the_build_are_rehearsed(self):
        folder = tempfile.TemporaryDirectory(prefix="accel-page-")
        self.addCleanup(folder.cleanup)
        session = Session(ROOT, BUILD, pathlib.Path(folder.name) / "page", uses_rust=False)
        session.folder = ROOT
        for block in self.blocks:
            if block.language not in pages.COMMANDS or block.test or not self.build_commands.has_one(block.text):
                continue
            rehearsals = [(line, self.build_commands.rehearse(line)) for line in command_lines(block.text)]
            self.assertEqual([f"{line}: {rehearsal.problem}" for line, rehearsal in rehearsals if rehearsal.problem], [], str(block))
            commands = [rehearsal.command for _, rehearsal in rehearsals]
            script = "\n".join(command for number, command in enumerate(commands) if command.startswith("export") or command not in commands[:number])
            with self.subTest(str(block)):
                self.expect_success(session, script)

    def expect_success(self, session, script):
        try:
            session.run(script)
        except Failed as failure:
            self.fail(f"{script}: {failure}")


class Guides(unittest.TestCase):
    """The parts of programs that guides have in several languages, each language at once."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="accel-page-")
        self.addCleanup(folder.cleanup)
        self.session = Session(ROOT, BUILD, pathlib.Path(folder.name) / "page")
        self.session.run(guides.FILES)
        self.blocks = [block for path in pages.page_paths(ROOT) for block in pages.blocks_of(ROOT, path) if guides.is_a_part(block)]

    def of(self, language):
        if not self.session.has(language):
            self.skipTest(f"{language} is not installed or not built")
        return [block for block in self.blocks if block.language == language]

    def test_rust(self):
        parts = self.of("rust")
        self.session.run("cargo new --quiet guides && cd guides && cargo add --quiet libaccel libaccel-sys")
        self.session.write("guides/src/main.rs", guides.rust(parts))
        self.session.run("cargo build --quiet --manifest-path guides/Cargo.toml && guides/target/debug/guides")

    def test_python(self):
        parts, python = self.of("python"), ROOT / "build/deps/python/bin/python"  # has NumPy
        if not python.exists():
            self.skipTest("the Python of tools/setup.sh --develop is not there")
        self.session.write("guides.py", guides.python(parts))
        self.session.run(f"{python} guides.py")

    def test_julia(self):
        self.session.write("guides.jl", guides.julia(self.of("julia")))
        self.session.run("julia guides.jl")


class Followed(unittest.TestCase):
    """Each page from its beginning to its end, as a reader does it."""

    def follow(self, name):
        blocks = [block for block in pages.blocks_of(ROOT, ROOT / name) if not TABS or not block.tab or block.tab in TABS]
        build_commands = BuildCommands(ROOT, BUILD)
        with tempfile.TemporaryDirectory(prefix="accel-page-") as folder:
            place = pathlib.Path(folder) / "page"
            uses_rust = any(block.language == "rust" or "cargo " in block.text for block in blocks)
            session = Session(ROOT, BUILD, place, uses_rust)
            if name in preparations.WITH_A_HOME:
                session.environment.update(HOME=str(place), HF_HOME=str(place / "hub"))
            # The reader of a page with tabs follows one of them, so each has a folder of its own.
            sessions = {tab: Session(ROOT, BUILD, place.parent / tab, uses_rust) for tab in sorted({block.tab for block in blocks if block.tab})}
            missing = sorted({block.tab for block in blocks if block.tab and not session.has(block.tab)})
            if missing:
                print(f"{name}: left out, not installed or not built: {', '.join(missing)}", file=sys.stderr)
            if name in preparations.OF:
                session.run(preparations.OF[name].format(root=ROOT, build=BUILD))
            said, commands = None, 0
            page = session
            for block in blocks:
                session = sessions.get(block.tab, page)
                if block.test or block.tab in missing or (block.language in missing):
                    said = None
                elif block.language in pages.COMMANDS:
                    text = "" if build_commands.has_one(block.text) else preparations.filled_in(name, block.text, ROOT, BUILD)
                    if block.name:
                        session.write(block.name, block.text)
                        continue
                    text = "".join(f"{line}\n" for line in text.splitlines() if (command_lines(line) or [""])[0] not in NOT_RUN)
                    if text.strip():
                        try:
                            said = session.run(text)
                        except Failed as failure:
                            self.fail(f"{block}: {text}: {failure}")
                        commands += 1
                elif block.language == "text" and said is not None:
                    self.assertTrue(is_alike(said, block.text), f"{block}: the page says\n{block.text}\nand printed was\n{said}")
                    said = None
                elif block.language == "diff" and block.name:
                    session.patch(block.name, block.text)
                elif block.name:
                    session.write(block.name, block.text)
        return commands


def add_page(path):
    name = str(path.relative_to(ROOT))

    def test(self):
        self.follow(name)
    setattr(Followed, f"test_{re.sub(r'[^a-z0-9]+', '_', name.lower())}", test)


if __name__ == "__main__":
    for path in pages.page_paths(ROOT):
        name = str(path.relative_to(ROOT))
        if name in CHOSEN or FOLLOWED and name not in LONG:
            if any(block.language in pages.COMMANDS and not block.test for block in pages.blocks_of(ROOT, path)):
                add_page(path)
    if CHOSEN:
        del Pages
    if not FOLLOWED:
        del Guides
    unittest.main(argv=sys.argv[:1], verbosity=1)
