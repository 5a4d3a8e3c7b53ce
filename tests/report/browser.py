# SPDX-License-Identifier: Apache-2.0
"""A browser without a window, for tests of the page: what a page holds after its scripts have run."""

import html.parser
import os
import re
import shutil
import subprocess
import tempfile

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SECONDS = 120
# What the browser itself says of elements that hold nothing.
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


# A script that writes what uPlot draws in each chart into an element `drawn`, once the charts have drawn it.
DRAWN = """
setTimeout(() => {
  const described = ({plot, data, marks}) => {
    const {x, y} = plot.scales, [, axis] = plot.axes, pixels = plot.ctx.getImageData(0, 0, plot.ctx.canvas.width, plot.ctx.canvas.height).data;
    let ink = 0;
    for (let i = 3; i < pixels.length; i += 4) ink += pixels[i] > 0;
    return {data, shown: plot.series[0].idxs, scales: [x.min, x.max, y.min, y.max], marks: marks.map(mark => String(mark.value)), ink,
            labels: axis.values(plot, axis.splits(plot, 1, y.min, y.max)), color: plot.series.length > 1 ? plot.series[1].stroke() : null};
  };
  const all = Object.fromEntries([...charts.values()].filter(chart => chart.plot).map(chart => [chart.title, described(chart)]));
  document.body.append(html("pre", {id: "drawn"}, JSON.stringify(all)));
}, 100);
"""


class Element:
    def __init__(self, tag, attributes):
        self.tag, self.attributes, self.children = tag, attributes, []

    def __getitem__(self, name):
        return self.attributes.get(name)

    @property
    def classes(self):
        return (self["class"] or "").split()

    def text(self):
        if self.tag in ("script", "style"):
            return ""
        return "".join(child if isinstance(child, str) else child.text() for child in self.children)

    def all(self, tag=None, **attributes):
        """The elements inside of this one with this tag, class and attributes."""
        of_class = attributes.pop("of_class", None)
        found = []
        for child in self.children:
            if isinstance(child, str):
                continue
            if ((tag is None or child.tag == tag) and (of_class is None or of_class in child.classes)
                    and all(child[name] == value for name, value in attributes.items())):
                found.append(child)
            found += child.all(tag, of_class=of_class, **attributes)
        return found

    def one(self, tag=None, **attributes):
        found = self.all(tag, **attributes)
        assert len(found) == 1, f"{len(found)} elements {tag} {attributes}"
        return found[0]

    def rows(self):
        """The cells of a table's body as text."""
        return [[cell.text() for cell in row.children if not isinstance(cell, str)] for row in self.one("tbody").all("tr")]


class TreeBuilder(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.root = Element("document", {})
        self.open = [self.root]

    def handle_starttag(self, tag, attrs):
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        for i in range(len(self.open) - 1, 0, -1):
            if self.open[i].tag == tag:
                del self.open[i:]
                return

    def handle_data(self, data):
        self.open[-1].children.append(data)


def dump(address, width=1200, budget=3000):
    """The document behind an address, and what the browser's console said, after `budget` virtual milliseconds."""
    with tempfile.TemporaryDirectory(prefix="accel-browser-") as folder:
        environment = {**os.environ, "HOME": folder, "XDG_CONFIG_HOME": folder, "XDG_CACHE_HOME": folder, "TZ": "UTC"}
        result = subprocess.run(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
             "--disable-background-networking", "--enable-logging=stderr", f"--user-data-dir={folder}/profile", f"--window-size={width},900",
             f"--virtual-time-budget={budget}", "--dump-dom", address],
            capture_output=True, text=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL, env=environment)
    console = re.findall(r":CONSOLE[:(].*", result.stderr)
    builder = TreeBuilder()
    builder.feed(result.stdout)
    return builder.root, console
