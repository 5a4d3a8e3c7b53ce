#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The site of the documentation builds without a warning, each link in it leads somewhere, and a browser shows it: site_test.py ROOT.

What is built stays in build/site, so that a second run takes seconds. Skipped (77) without Sphinx; without a browser it is not looked at.
"""

import contextlib
import functools
import html
import http.server
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.parse

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "tests/report"))
import browser  # noqa: E402

SITE = ROOT / "build/site"
WIDTHS = (1400, 1024, 420)
# Opens each page in each width, and writes what is wider than its place into an element `answer`.
MEASURE = """<!doctype html><body><script>
(async () => {
  const found = [];
  for (const width of WIDTHS) for (const page of PAGES) {
    const frame = document.createElement('iframe');
    frame.style.cssText = `width: ${width}px; height: 900px; border: 0`;
    await new Promise(resolve => { frame.onload = resolve; frame.src = page; document.body.append(frame); });
    const shown = frame.contentDocument, article = shown.querySelector('article') || shown.body;
    const seen = shown.documentElement.scrollWidth, edge = article.getBoundingClientRect().right;
    if (frame.contentWindow.innerWidth != width) found.push(`${page}: ${width} px were asked for, and shown are ${frame.contentWindow.innerWidth}`);
    if (seen > width) found.push(`${page} at ${width} px: the page has ${seen}`);
    if (shown.querySelector('article') && article.getBoundingClientRect().width > 1100) found.push(`${page} at ${width} px: the text is wider than 1100 px`);
    for (const part of article.querySelectorAll('table, pre, img, dt')) {
      const box = part.getBoundingClientRect();
      if (box.width && (part.scrollWidth > part.clientWidth + 1 || box.right > edge + 1))
        found.push(`${page} at ${width} px: ${part.tagName} "${part.textContent.trim().slice(0, 60)}" is cut off`);
    }
    if (width >= 1024) {
      const line = [...article.querySelectorAll('pre')].find(each => !each.closest('li, dd')), ruler = shown.createElement('span');
      if (line) {
        ruler.textContent = 'x'.repeat(100);
        line.append(ruler);
        if (ruler.getClientRects().length > 1) found.push(`${page} at ${width} px: 100 columns do not fit a line`);
      }
    }
    frame.remove();
  }
  const answer = document.createElement('div');
  answer.id = 'answer';
  answer.textContent = JSON.stringify(found);
  document.body.append(answer);
})();
</script></body>"""
needs_browser = unittest.skipIf(browser.CHROMIUM is None, "there is no chromium; tools/setup.sh --develop installs it")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served():
    """The address of the site on a server, where pages may read each other."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


class Built(unittest.TestCase):
    def test_each_link_leads_to_a_place(self):
        pages = {path: path.read_text() for path in SITE.glob("**/*.html") if "_static" not in path.parts}
        self.assertGreater(len(pages), 60)
        places = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in pages.items()}
        for path, text in pages.items():
            for link in re.findall(r'<(?:a|link|img|script)\b[^>]*?\b(?:href|src)="([^"]*)"', text):
                parts = urllib.parse.urlsplit(html.unescape(link))
                if parts.scheme or parts.netloc or link == "#":
                    continue
                target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
                self.assertTrue(target.is_file(), f"{path.relative_to(SITE)}: {link}")
                if parts.fragment and target in places:
                    self.assertIn(urllib.parse.unquote(parts.fragment), places[target], f"{path.relative_to(SITE)}: {link}")

    def test_nothing_comes_from_elsewhere(self):
        for path in SITE.glob("**/*.html"):
            self.assertNotRegex(path.read_text(), r'<(?:script|img|iframe)\b[^>]*\bsrc="(?:https?:)?//', path.name)

    def test_each_language_has_its_reference(self):
        for page, names in {"api/10_accelerator": ["accel_backward"], "reference/python": ["Accelerator.backward", "Accelerator.gather_for_metrics"],
                            "reference/rust": ["backward", "gather_for_metrics"], "reference/julia": ["gather_for_metrics", "DataLoader"],
                            "reference/go": ["GatherForMetrics", "Backward"], "reference/cpp": ["gather_for_metrics", "backward", "class Value", "tensors() const", "class Scope"]}.items():
            words = re.sub(r"<[^>]*>", "", (SITE / f"docs/{page}.html").read_text())
            for name in names:
                self.assertTrue(name in words, f"{page} has no {name}")


    def test_the_list_of_pages_has_their_titles(self):
        """Each link of docs/index.md has the words of the title of its page, and the sidebar has the words of the link."""
        sidebar = re.search(r'<div class="sidebar-tree">(.*?)</div>', (SITE / "docs/index.html").read_text(), re.DOTALL)[1]
        shown = {html.unescape(name) for name in re.findall(r'<a class="reference internal" href="[^"]*">([^<]*)</a>', sidebar)}
        links = re.findall(r"^- \[([^\]]*)\]\(([^)]*)\)", (ROOT / "docs/index.md").read_text(), re.MULTILINE)
        self.assertGreater(len(links), 60)
        for name, page in links:
            title = re.search(r"^# (.*)$", (ROOT / "docs" / page).read_text(), re.MULTILINE)[1]
            self.assertIn(name.lower(), title.lower(), page)
            self.assertIn(name, shown)


class Linked(unittest.TestCase):
    def test_pages_link_their_sources_where_the_repository_is_named(self):
        self.assertNotIn('title="Edit this page"', (SITE / "docs/data.html").read_text())
        with tempfile.TemporaryDirectory(prefix="accel-site-") as folder:
            shutil.copytree(SITE / ".doctrees", pathlib.Path(folder) / ".doctrees")  # what has been read is not read again
            subprocess.run([ROOT / "tools/docs.sh", "--repository", "https://github.com/example/libaccel", folder], check=True)
            for page, source in (("docs/data.html", "docs/data.md"), ("README.html", "README.md")):
                self.assertIn(f'href="https://github.com/example/libaccel/edit/main/{source}"', (pathlib.Path(folder) / page).read_text())


@needs_browser
class Shown(unittest.TestCase):
    def show(self, page, query="", **options):
        document, console = browser.dump(f"{(SITE / page).as_uri()}{query}", **options)
        self.assertEqual(console, [])
        return document

    def ask(self, page, script, **options):
        """What a script finds in a page: it runs in a copy beside it."""
        text = (SITE / page).read_text()
        probe = f"<script>addEventListener('load', () => setTimeout(() => {{ const answer = document.createElement('div'); answer.id = 'answer'; " \
                f"answer.textContent = JSON.stringify((() => {{ {script} }})()); document.body.append(answer); }}, 500));</script></body>"
        with tempfile.NamedTemporaryFile("w", suffix=".html", prefix="probe_", dir=(SITE / page).parent) as copy:
            copy.write(text.replace("</body>", probe))
            copy.flush()
            document, console = browser.dump(pathlib.Path(copy.name).as_uri(), **options)
        self.assertEqual(console, [])
        return json.loads(document.one(id="answer").text())

    def test_the_first_page_leads_on(self):
        document = self.show("index.html")
        sidebar = document.one("div", of_class="sidebar-tree")
        captions = [caption.text().strip() for caption in sidebar.all("p", of_class="caption")]
        self.assertEqual(captions, ["Start", "Guides", "From other libraries", "Languages", "Reference", "For maintainers"])
        names = [link.text().strip() for link in sidebar.all("a")]
        for name in ("Installation", "Tutorial", "Troubleshooting", "Environment variables", "Security"):
            self.assertIn(name, names)

    def test_the_first_page_has_three_doors(self):
        found = self.ask("docs/index.html", """
            const cards = [...document.querySelectorAll('.sd-card')], logo = document.querySelector('.sidebar-logo');
            return {doors: cards.map(card => [card.querySelector('.sd-card-title').textContent.trim(), card.querySelector('a').getAttribute('href')]),
                    rows: new Set(cards.map(card => card.getBoundingClientRect().top)).size, logo: logo.naturalWidth};""", width=1400)
        self.assertEqual(found["doors"], [["Train", "tutorial.html"], ["Embed", "embedding.html"], ["Port", "python_port.html"]])
        self.assertEqual((found["rows"], found["logo"]), (1, 64))

    def test_search_finds_words(self):
        for word, expected in (("checkpoint", "Checkpoints"), ("accel_backward", "Accelerator: the training loop"), ("hostfile", "Several hosts")):
            results = self.show("search.html", f"?q={word}", budget=8000).one(id="search-results")
            found = [item for item in results.all("li") if any(expected in link.text() for link in item.all("a"))]
            self.assertTrue(found, f"{word}: {results.text()[:500]}")
            marked = [mark.text().lower() for item in found for mark in item.all("mark")]
            self.assertIn(word, marked, f"{word}: {[item.text() for item in found]}")

    def test_nothing_is_cut_off(self):
        pages = sorted(str(path.relative_to(SITE)) for path in SITE.glob("**/*.html") if "_static" not in path.parts and path.name not in ("genindex.html", "search.html"))
        with tempfile.NamedTemporaryFile("w", suffix=".html", prefix="probe_", dir=SITE) as probe, served() as address:
            probe.write(MEASURE.replace("WIDTHS", json.dumps(WIDTHS)).replace("PAGES", json.dumps([page for page in pages if not page.startswith("probe_")])))
            probe.flush()
            document, _ = browser.dump(f"{address}/{pathlib.Path(probe.name).name}", width=1500, budget=200000)
        self.assertEqual(json.loads(document.one(id="answer").text()), [])

    def test_programs_are_coloured_and_copied_and_in_tabs(self):
        found = self.ask("README.html", """
            const tabs = document.querySelectorAll('.sd-tab-set')[0], labels = [...tabs.querySelectorAll('label')];
            labels[1].click();
            const shown = [...tabs.querySelectorAll('.sd-tab-content')].filter(tab => getComputedStyle(tab).display != 'none');
            return {labels: labels.map(label => label.textContent.trim()), shown: shown.map(tab => tab.textContent),
                    buttons: document.querySelectorAll('button.copybtn').length,
                    colours: new Set([...document.querySelectorAll('.highlight span')].map(span => getComputedStyle(span).color)).size};""")
        self.assertEqual(found["labels"], ["Python", "C++", "C", "Rust", "Go", "Julia"])
        self.assertEqual(len(found["shown"]), 1)
        self.assertIn("#include <accel.hpp>", found["shown"][0])
        self.assertGreater(found["buttons"], 4)
        self.assertGreater(found["colours"], 4)

    def test_narrow_screens_scroll_down_only(self):
        for page in ("README.html", "docs/tutorial.html", "docs/environment.html", "docs/api/10_accelerator.html"):
            found = self.ask(page, "return [document.documentElement.scrollWidth, innerWidth];", width=360)
            self.assertLessEqual(found[0], found[1], page)

    def test_dark(self):
        script = """document.body.dataset.theme = theme;
            const light = colour => colour.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 765;
            const code = document.querySelector('div.highlight'), style = getComputedStyle(document.body);
            return [light(style.backgroundColor), light(style.color), light(getComputedStyle(code).backgroundColor), light(getComputedStyle(code).color)];"""
        page, words, code, letters = self.ask("docs/launching.html", script.replace("= theme", "= 'dark'"))
        self.assertTrue(page < 0.2 and words > 0.6 and code < 0.3 and letters > 0.6, (page, words, code, letters))
        page, words, code, letters = self.ask("docs/launching.html", script.replace("= theme", "= 'light'"))
        self.assertTrue(page > 0.8 and words < 0.4 and code > 0.8 and letters < 0.6, (page, words, code, letters))


if __name__ == "__main__":
    done = subprocess.run([ROOT / "tools/docs.sh"], check=False)
    if done.returncode:
        sys.exit(77 if done.returncode == 77 else "the site does not build without warnings")
    unittest.main(verbosity=1)
