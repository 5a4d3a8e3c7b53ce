# SPDX-License-Identifier: Apache-2.0
"""Makes of the repository's Markdown what the site needs, so that the pages read well in both places.

- Consecutive `<details>` whose summaries are names of languages become tabs.
- The links of lists and tables of contents become the navigation: those of each section of docs/index.md, and of docs/api.md, docs/parity.md and docs/decisions.md.
- The list behind `<!-- cards -->` becomes a row of cards.
- `<!-- reference: LANGUAGE -->` becomes the reference of a language, from the sources of its binding.
"""

import pathlib
import posixpath
import re
import zlib

import reference

LANGUAGES = ("C", "C++", "Python", "Rust", "Julia", "Go")
CONTENTS = ("docs/index", "docs/api", "docs/parity", "docs/decisions")
DETAILS = r"<details([^>]*)>\s*<summary>({})</summary>\n(.*?)\n</details>\n*".format("|".join(map(re.escape, LANGUAGES)))


def with_tabs(text):
    def tabs(group):
        items = re.findall(DETAILS, group[0], re.DOTALL)
        shown = next((language for attributes, language, _ in items if "open" in attributes), items[0][1])
        return "::::{tab-set}\n" + "".join(
            f":::{{tab-item}} {language}\n:sync: {language.lower()}\n{':selected:' if language == shown else ''}\n{body}\n:::\n"
            for _, language, body in items) + "::::\n\n"
    return re.sub(f"(?:{DETAILS})+", tabs, text, flags=re.DOTALL)


def with_cards(docname, text):
    def cards(group):
        items = re.findall(r"^- \*\*\[([^\]]*)\]\(([^)]*)\.md\)\*\*: (.*)$", group[1], re.MULTILINE)
        folder = posixpath.dirname(docname)
        return "::::{grid} 1 1 3 3\n:gutter: 3\n\n" + "".join(
            f":::{{grid-item-card}} {title}\n:link: /{posixpath.normpath(posixpath.join(folder, page))}\n:link-type: doc\n\n{words[0].upper()}{words[1:]}\n:::\n"
            for title, page, words in items) + "::::\n"
    return re.sub(r"^<!-- cards -->\n((?:- .*\n)+)", cards, text, flags=re.MULTILINE)


def with_navigation(docname, text):
    """Hidden contents behind each section: Sphinx orders the pages by them, under the titles that the list has."""
    def contents(section):
        title, body = section[1], section[2]
        links = re.findall(r"^(?: *-|\|) .*?\[([^\]]*)\]\(([^)#]+)\.md\)", body, re.MULTILINE)
        folder = posixpath.dirname(docname)
        if docname != "docs/index":  # only the pages that are below this one
            links = [(link, page) for link, page in links if page.startswith(posixpath.basename(docname) + "/")]
        if not links:
            return section[0]
        names = {}
        for name, page in links:
            names.setdefault("/" + posixpath.normpath(posixpath.join(folder, page)), name)
        entries = "\n".join(f"{name} <{page}>" for page, name in names.items())
        caption = f":caption: {title}\n" if docname == "docs/index" else ""
        return f"{section[0]}\n\n```{{toctree}}\n:hidden:\n{caption}\n{entries}\n```\n\n"
    return re.sub(r"^#+ (.*)\n((?:(?!^#+ ).*\n?)*)", contents, text, flags=re.MULTILINE)


def read_source(app, docname, source):
    text = with_tabs(source[0])
    if re.match("bindings/[^/]+/[^/]+/README$", docname):  # the page of a package of a binding, which the binding's page links
        text = f"---\norphan: true\n---\n{text}"
    text = with_cards(docname, text)
    if docname in CONTENTS:
        text = with_navigation(docname, text)
    language = re.search(r"^<!-- reference: (\w+) -->$", text, re.MULTILINE)
    if language:
        for path in reference.sources(language[1]):
            app.env.note_dependency(str(path))
        text = text.replace(language[0], reference.markdown(language[1]))
    # Neither the name of a file nor what rustdoc is told is a part of the language.
    source[0] = re.sub(r"^( *)```(\w+)(?:,[\w,]+| \S+)$", r"\1```\2", text, flags=re.MULTILINE)


def setup(app):
    app.connect("source-read", read_source)
    # Pages that an older state of these files has read are read again.
    state = zlib.crc32(b"".join(path.read_bytes() for path in sorted(pathlib.Path(__file__).parent.glob("*.py"))))
    return {"version": "1", "env_version": state, "parallel_read_safe": True, "parallel_write_safe": True}
