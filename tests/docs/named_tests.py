# SPDX-License-Identifier: Apache-2.0
"""The tests that pages name: that they exist, and that they run what stands in the block.

A test takes a block from its page, by the language (its source has the name of the page, and "```LANGUAGE"), by the name of the block
(`blocks["NAME"]`) or by its beginning (Rust: `between(&readme, "\\nBEGINNING", ...)`), or it has each line of the block in its own source.
"""

import functools
import pathlib
import re


@functools.cache
def source(path):
    return pathlib.Path(path).read_text()


def missing(root, name):
    """Why a test that a page names is not there; nothing if it is."""
    path, _, what = name.partition(": ")
    if not (root / path).is_file():
        return f"there is no file {path}"
    return "" if re.search(rf"\b{re.escape(what)}\b", source(root / path)) else f"{path} has no {what}"


def takes(root, block):
    """Whether the test takes the whole block from its page."""
    text = source(root / block.test.partition(": ")[0])
    if block.name and f'blocks["{block.name}"]' in text:
        return True
    page = pathlib.Path(block.page).name
    if page not in text:
        return False
    if re.search(rf"```(?:{re.escape(block.language)}\b|\$language|\{{language\}})", text) or f'include_str!("../{page}")' in text:
        return True
    return any(("\n" + block.text).startswith(f"\n{begin}") and end == r"\n```"
               for begin, end in re.findall(r'between\(\s*&readme, "\\n([^"]+)", "([^"]+)"', text))


def words(text):
    """Without what the languages of tests put between words of a command."""
    return re.sub(r"[\s\"',\[\]\\]+", " ", text)


def lines_that_are_not_in(root, block, lines, blocks):
    """Those of a block's lines that its test neither takes from this page or another one nor has itself."""
    if takes(root, block):
        return []
    file = block.test.partition(": ")[0]
    taken = [other.text for other in blocks if other.test.startswith(f"{file}: ") and takes(root, other)]
    text = "\n".join([source(root / file), *taken])
    begins = [begin for begin, _ in re.findall(r'between\(\s*&readme, "\\n([^"]+)", "([^"]+)"', text)]
    return [line for line in lines if words(line).strip() not in words(text) and not any(line.startswith(begin) for begin in begins)]
