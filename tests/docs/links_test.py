#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Links of the pages to files, and to headings of pages, lead somewhere: links_test.py ROOT. The test `site` looks at what Sphinx makes of them."""

import re
import sys
import urllib.parse

import pages

LINK = re.compile(r"\]\(([^()\s]+)\)")
CODE = re.compile(r"^ *(`{3,}).*?^ *\1|`[^`\n]+`", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
TARGET = re.compile(r'^\(([\w-]+)\)=$|\bid="([^"]+)"', re.MULTILINE)


def places_of(path):
    """The words of its headings as a link has them, and places that it names itself."""
    text = path.read_text(encoding="utf-8")
    without_programs = re.sub(r"^ *(`{3,}).*?^ *\1", "", text, flags=re.MULTILINE | re.DOTALL)
    found = {place for names in TARGET.findall(text) for place in names if place}
    for heading in HEADING.findall(without_programs):
        words = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading).lower()).strip().replace(" ", "-")
        found.add(words if words not in found else next(f"{words}-{number}" for number in range(1, 100) if f"{words}-{number}" not in found))
    return found


def problems(root):
    for path in pages.page_paths(root):
        for link in LINK.findall(CODE.sub("", path.read_text(encoding="utf-8"))):
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{path.relative_to(root)}: {link} does not exist"
            elif parts.fragment and target.suffix == ".md" and parts.fragment not in places_of(target):
                yield f"{path.relative_to(root)}: {link}: the page has no such heading"


if __name__ == "__main__":
    sys.exit(pages.report(problems, "every link leads somewhere"))
