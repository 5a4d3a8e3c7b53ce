# SPDX-License-Identifier: Apache-2.0
"""Writes the words of all pages into _static/search_text.js, from which static/excerpts.js takes what stands around a word."""

import html
import json
import pathlib
import re

LONGEST = 100_000  # letters of a page; the rest has no excerpt


def words(page):
    """What a reader sees of a page, without its navigation."""
    body = re.search(r'<article[^>]*>(.*?)</article>', page, re.DOTALL)
    text = re.sub(r"<(script|style|svg)\b.*?</\1>|<[^>]*>", " ", body[1] if body else "", flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(text).replace("¶", " ")).strip()[:LONGEST]


def add_scripts(app, pagename, templatename, context, doctree):
    if pagename == "search":
        app.add_js_file("search_text.js")
        app.add_js_file("excerpts.js")


def write(app, exception):
    if exception is None and app.builder.format == "html":
        folder = pathlib.Path(app.outdir)
        text = {name: words((folder / f"{name}.html").read_text(encoding="utf-8")) for name in sorted(app.env.found_docs)}
        (folder / "_static/search_text.js").write_text(f"const SEARCH_TEXT = {json.dumps(text, ensure_ascii=False)};\n", encoding="utf-8")


def setup(app):
    app.connect("html-page-context", add_scripts)
    app.connect("build-finished", write)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
