# SPDX-License-Identifier: Apache-2.0
"""The pages of the documentation as their readers follow them: blocks of programs and commands, with what is said about each.

A block can have a name behind its language: the file that a reader writes it to (`c train.c`; `diff train.c` changes that file). In a
comment on the line before it `<!-- test: PATH: NAME -->` names the test or trial that runs it, which takes the block from
the page or has each of its commands (named_tests.py); a comment `<!-- test of LANGUAGE: PATH: NAME -->`
anywhere in the page does so for all blocks of a language. Commands that build or test are rehearsed (build_commands.py), parts of programs in Rust and
Julia are put together and run (guides.py), all other commands are run as they stand.
"""

import dataclasses
import pathlib
import re
import sys

import preparations

PROGRAMS = ("c", "cpp", "python", "rust", "julia", "go", "java", "js", "lua", "cmake", "meson", "diff", "yaml")
COMMANDS = ("sh", "bash", "console")
OTHERS = ("text", "json", "", "toml", "pkg", "toctree")  # what is printed, and files of others
LANGUAGE_OF = {"C": "c", "C++": "cpp", "Python": "python", "Rust": "rust", "Julia": "julia", "Go": "go"}
BLOCK = re.compile(r"(?:^<!-- test: (?P<test>.*?) -->\n)?^(?P<indent> *)```(?P<language>[\w{}]*)(?:,[\w,]+)?(?: (?P<name>\S+))?\n(?P<text>.*?)^ *```$",
                   re.MULTILINE | re.DOTALL)
SUMMARY = re.compile(r"<summary>(.*?)</summary>|</details>")
GENERATED = re.compile(r"^<!-- Generated ")


@dataclasses.dataclass
class Block:
    page: str
    line: int
    language: str
    name: str
    text: str
    test: str        # "PATH: NAME" or nothing
    tab: str         # the language of its tab, or nothing

    def __str__(self):
        return f"{self.page}:{self.line}"


def report(problems, fine):
    """The exit status of a test of the folder that is its argument: prints what `problems` yields of that, else that it is `fine`."""
    if len(sys.argv) != 2:
        print(f"usage: {pathlib.Path(sys.argv[0]).name} SOURCE_ROOT", file=sys.stderr)
        return 2
    found = list(problems(pathlib.Path(sys.argv[1]).resolve()))
    print("\n".join(found) if found else fine)
    return 1 if found else 0


def page_paths(root):
    root = pathlib.Path(root)
    paths = [*root.glob("*.md"), *(root / "docs").glob("**/*.md"), *(root / "bindings").glob("*/README.md"),
             *(root / "bindings").glob("*/*/README.md"), *(root / "examples").glob("**/README.md"), *(root / "bench").glob("*.md")]
    return [path for path in sorted(paths) if "target" not in path.parts and not GENERATED.match(path.read_text())]


def blocks_of(root, path):
    text = path.read_text()
    tests = {**preparations.TESTED_ELSEWHERE.get(str(path.relative_to(root)), {}), **dict(re.findall(r"^<!-- test of (\w+): (.*?) -->$", text, re.MULTILINE))}
    found = []
    for match in BLOCK.finditer(text):
        before = [summary[1] or "" for summary in SUMMARY.finditer(text, 0, match.start())]
        indent = len(match["indent"])
        found.append(Block(str(path.relative_to(root)), text.count("\n", 0, match.start()) + 1, match["language"], match["name"] or "",
                           "".join(line[indent:] if not line[:indent].strip() else line for line in match["text"].splitlines(True)),
                           match["test"] or tests.get(match["language"], ""), LANGUAGE_OF.get(before[-1], "") if before else ""))
    return found
