#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes index.html of a release's folder: its files with sizes and checksums, and the commands that install them, by language.

usage: index.py FOLDER

The commands are the named blocks of docs/installation.md. pip reads the links of the page where the folder is served (`--find-links URL`).
"""

import hashlib
import html
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = "docs/installation.md"
# {name of the block: heading}, in the order of the page.
HEADINGS = {"python": "Python", "archive": "C, C++ and Go", "environment": "Variables, for the commands of all pages", "apt": "Debian and Ubuntu, with root rights", "debian": "Debian and Ubuntu, without them",
            "rust": "Rust", "julia": "Julia"}
# What a release consists of: {pattern of names: what it is for}.
FILES = {"libaccel-*.whl": "Python", "libaccel-[0-9]*-linux-*.tar.gz": "C, C++, Go, Rust, Julia: the archive", "libaccel_*.deb": "Debian, Ubuntu",
         "libaccel-sys-*.crate": "Rust", "libaccel-derive-*.crate": "Rust", "libaccel-[0-9]*.crate": "Rust", "Accel-*.tar.gz": "Julia",
         "libaccel-julia-*.tar.gz": "Julia: the artifact", "Artifacts.toml": "Julia: names the artifact"}
STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#1b2230}
pre{background:#f6f7f9;border:1px solid #c3cad6;border-radius:8px;padding:.8em;white-space:pre-wrap;overflow-wrap:anywhere}
td,th{text-align:left;padding:.2em 1em .2em 0;vertical-align:top;overflow-wrap:anywhere}code{font-size:.85em}"""


class FolderError(Exception):
    """One line: the file, and what is expected."""


def commands():
    """{heading: commands} of the page on installation."""
    blocks = dict(re.findall(r"^```sh (\w+)\n(.*?)^```", (ROOT / PAGE).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
    if blocks.keys() != HEADINGS.keys():
        raise FolderError(f"{PAGE} has the blocks {', '.join(blocks)}; expected {', '.join(HEADINGS)}")
    return {heading: blocks[name] for name, heading in HEADINGS.items()}


def files_of(folder):
    """[(file, what it is for, checksum)]. Each kind of file must be there, and have the checksum of SHA256SUMS."""
    sums = folder / "SHA256SUMS"
    if not sums.is_file():
        raise FolderError(f"{folder} has no SHA256SUMS; expected the files of tools/package.sh")
    listed = {name: digest for digest, name in (line.split(maxsplit=1) for line in sums.read_text().splitlines())}
    found = []
    for pattern, purpose in FILES.items():
        names = sorted(name for name in listed if pathlib.PurePath(name).match(pattern))
        if not names:
            raise FolderError(f"SHA256SUMS has no {pattern}; expected a file for {purpose}")
        for name in names:
            if not (folder / name).is_file():
                raise FolderError(f"{name} of SHA256SUMS is missing in {folder}")
            digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
            if digest != listed[name]:
                raise FolderError(f"{name} has the checksum {digest}; SHA256SUMS says {listed[name]}")
            found.append((folder / name, purpose, digest))
    unknown = listed.keys() - {file.name for file, _, _ in found}
    if unknown:
        raise FolderError(f"SHA256SUMS has {', '.join(sorted(unknown))}; expected the kinds {', '.join(FILES)}")
    return found


def page(folder):
    rows = "".join(f'<tr><td><a href="{html.escape(file.name)}">{html.escape(file.name)}</a></td><td>{html.escape(purpose)}</td>'
                   f"<td>{file.stat().st_size:,}</td><td><code>{digest}</code></td></tr>\n" for file, purpose, digest in files_of(folder))
    blocks = "".join(f"<h2>{html.escape(heading)}</h2>\n<pre>{html.escape(text)}</pre>\n" for heading, text in commands().items())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>libaccel: the files of a release</title><style>{STYLE}</style></head><body>
<h1>libaccel</h1>
<p>Distributed training for every language, on Linux on x86_64 with glibc 2.31 or later. Download the files of your language into one folder, and run
the commands there. <a href="SHA256SUMS">SHA256SUMS</a> has the checksums (<code>sha256sum --check --ignore-missing SHA256SUMS</code>).</p>
{blocks}<h2>Files</h2>
<table><tr><th>file</th><th>for</th><th>bytes</th><th>SHA-256</th></tr>
{rows}</table>
</body></html>
"""


def write_index(folder):
    (folder / "index.html").write_text(page(folder), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: index.py FOLDER")
    try:
        write_index(pathlib.Path(sys.argv[1]))
    except FolderError as error:
        sys.exit(f"index: {error}")
