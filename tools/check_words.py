#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the words and sentences of what users read: pages, public headers, docstrings of the bindings.

usage: check_words.py SOURCE_ROOT

Three rules: a word of WORDS is replaced by the field's own; a sentence has a subject, so none begins with a word of BEGINNINGS; a page for
newcomers has at most MOST_WORDS words a sentence in the mean.
"""

import ast
import pathlib
import re
import sys

# A word or a pattern, and what to write instead. Code is not looked at: names of functions and fields stay.
WORDS = [
    (r"(?<!guides and )the reference(?! (implementation|of (the|each|a) (C API|language)))(?='s\b|\b)", '"Accelerate", "torch", "transformers": the name of what is meant'),
    (r"seats?", '"handle to the job"'),
    (r"items? (by|with|without) (their |its |a )?numbers?", '"map-style" or "iterable"'),
    (r"seeing a run", '"Monitoring"'),
    (r"without all scores", '"logits"'),
    (r"scores of (a|the) loss", '"logits"'),
    (r"pieces?", '"shard" of a parameter, "chunk" of a message or a file, "box" of a tensor, "block" of memory'),
    (r"told", '"notified", "informed", "given", or a sentence whose subject acts'),
    (r"heard|hears?", '"receives", "is called with", "learns"'),
    (r"kept", '"cached", "saved", "retained", "stored", "preserved"'),
]
BEGINNINGS = ("Of", "That", "Those", "What", "As", "The same")
MOST_WORDS = 20
# Pages that newcomers read as a whole; of every other guide they read the first page, up to the second heading.
WHOLE_PAGES = ("README.md", "docs/tutorial.md", "docs/installation.md")
# Pages of facts, or written for maintainers: they have no first page for newcomers.
NO_GUIDES = ("docs/dependencies.md", "docs/development.md", "docs/extending.md", "docs/reliability.md")
CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
QUOTED = re.compile(r'"\w+"')  # a key or a value, which is code too
LINK = re.compile(r"!?\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])")
END_OF_SENTENCE = re.compile(r"(?<=[.!?])[)\"*]*\s+(?=[\"(*A-Z`])")
ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|et al|cf|vs|etc|[A-Z])\.)$")


class Text:
    """Prose with the line that it begins at. `kind`: "paragraph", "item" of a list, "cell" of a table, "heading" or "comment"."""

    def __init__(self, line, kind, text):
        self.line, self.kind = line, kind
        self.raw = text
        self.text = " ".join(LINK.sub(r"\1", QUOTED.sub("CODE", CODE.sub("CODE", re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)))).split())

    def sentences(self):
        begun = ""
        for part in END_OF_SENTENCE.split(self.text):
            begun = f"{begun} {part}".strip()
            if not ABBREVIATION.search(begun):
                yield begun
                begun = ""
        if begun:
            yield begun


def of_page(page):
    """The prose of a page in Markdown; blocks of code are left out."""
    texts, lines, kind, begun, fence = [], [], "", 0, None

    def end():
        if lines:
            texts.append(Text(begun, kind, "\n".join(lines)))
        lines.clear()

    for number, line in enumerate(page.splitlines(), 1):
        stripped = line.strip().lstrip("> ")
        mark = re.match(r"(```+|~~~+|:::+)", stripped)
        if mark and mark[1].startswith(":"):
            end()
            continue
        if fence:
            if stripped.startswith(fence) and not stripped.strip("`~"):
                fence = None
            continue
        if mark:
            end()
            fence = mark[1]
        elif not stripped or re.match(r"(<!--.*-->$|\(\w[\w-]*\)=$|<[^>]*>$|:\w)", stripped):
            end()
        elif stripped.startswith("#"):
            end()
            texts.append(Text(number, "heading", stripped.lstrip("# ")))
        elif stripped.startswith("|"):
            end()
            if not re.fullmatch(r"[|\s:-]+", stripped):
                texts.extend(Text(number, "cell", cell) for cell in re.split(r"(?<!\\)\|", stripped.strip("|")) if cell.strip())
        else:
            item = re.match(r"(?:[-*+]|\d+\.) +(.*)", stripped)
            if item:
                end()
                kind, stripped = "item", item[1]
            elif not lines:
                kind = "paragraph"
            if not lines:
                begun = number
            lines.append(stripped)
    end()
    return texts


def of_blocks(source, pattern, mark):
    """The comments that a pattern finds, without the marks at the beginnings of their lines."""
    for found in re.finditer(pattern, source, re.MULTILINE):
        text = re.sub(mark, "", found[0], flags=re.MULTILINE)
        if "SPDX-License-Identifier" not in text:
            yield from _paragraphs(source.count("\n", 0, found.start()) + 1, text)


def _paragraphs(line, text):
    """A comment is prose like that of a page, with descriptions of parameters instead of tables."""
    for one in of_page(re.sub(r"^\s*@(param [\w,]+|return|since [\w.]+|accelerate \S.*)", "\n", text, flags=re.MULTILINE)):
        yield Text(line + one.line - 1, "comment", one.raw)


def of_header(source):
    return of_blocks(source, r"/\*[\s\S]*?\*/|(?:^[ \t]*//.*\n)+|//.*", r"^\s*(/\*\*?(?!/)|\*(?!/)|//+)|\s*\*/$")


def of_rust(source):
    return of_blocks(source, r"(?:^[ \t]*//[/!].*\n)+", r"^\s*//[/!] ?")


def of_julia(source):
    return of_blocks(source, r'^"""(?:.|\n)*?"""', r'^"""|"""$')


def of_python(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield from _paragraphs(node.body[0].lineno, text)


# What is read, and how. What tools write from these is not read again, but for the pages.
READ = [("README.md", of_page), ("docs/*.md", of_page), ("docs/api/*.md", of_page), ("docs/parity/*.md", of_page), ("bindings/*/README.md", of_page),
        ("include/accel.h", of_header), ("include/accel/*.h", of_header), ("bindings/rust/accel/src/**/*.rs", of_rust),
        ("bindings/julia/src/**/*.jl", of_julia), ("bindings/python/accel/**/*.py", of_python)]
WRITTEN = re.compile(r"generated|bindings/julia/src/LibAccel\.jl")
# Where sentences still begin as they like: folders and pages leave this list, and none comes.
BEGINNINGS_LATER = ()


def word_problems(texts):
    for text in texts:
        for pattern, instead in WORDS:
            for found in re.finditer(rf"\b(?:{pattern})\b", text.text, re.IGNORECASE):
                yield text.line, f'"{found[0]}" is not the field\'s word; expected {instead}, in: {_around(text.text, found.start())}'


def beginning_problems(texts):
    for text in texts:
        if text.kind == "heading":
            continue
        for sentence in text.sentences():
            first = re.match(rf"[\"(*]*({'|'.join(BEGINNINGS)})\b(?!-)", sentence)
            if first and not sentence.endswith("?"):
                yield text.line, f'a sentence begins with "{first[1]}"; expected its subject: {sentence[:80]}'


def first_page(texts):
    """Up to the second heading below the title."""
    headings = [place for place, text in enumerate(texts) if text.kind == "heading"]
    return texts[:headings[2]] if len(headings) > 2 else texts


def mean_of_words(texts):
    counts = []
    for text in texts:
        # An item that is a link, perhaps with what it leads to, belongs to a list of links.
        if text.kind in ("paragraph", "item") and not LINK.match(text.raw.strip("*")):
            counts.extend(len(sentence.split()) for sentence in text.sentences())
    return sum(counts) / len(counts) if counts else 0


def length_problems(name, texts):
    if re.fullmatch(r"README\.md|docs/\w+\.md", name) and name not in NO_GUIDES:
        mean = mean_of_words(texts if name in WHOLE_PAGES else first_page(texts))
        if mean > MOST_WORDS:
            part = "" if name in WHOLE_PAGES else " up to the second heading"
            yield 1, f"{mean:.1f} words a sentence{part}; expected at most {MOST_WORDS}"


def problems(root):
    for pattern, reader in READ:
        for file in sorted(root.glob(pattern)):
            name = file.relative_to(root).as_posix()
            if WRITTEN.search(name):
                continue
            texts = list(reader(file.read_text()))
            for line, problem in word_problems(texts):
                yield f"{name}:{line}: {problem}"
            if not name.startswith(BEGINNINGS_LATER):
                for line, problem in beginning_problems(texts):
                    yield f"{name}:{line}: {problem}"
            for line, problem in length_problems(name, texts):
                yield f"{name}:{line}: {problem}"


def _around(text, place):
    return ("..." if place > 30 else "") + text[max(0, place - 30):place + 50]


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    found = list(problems(pathlib.Path(sys.argv[1])))
    print("\n".join(found) if found else "the words of the pages, headers and docstrings are the field's")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
