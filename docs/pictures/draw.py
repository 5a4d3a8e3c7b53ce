#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of the guides, docs/pictures/NAME.svg, from scenes.py: usage: draw.py [--check]

--check writes nothing and says which files are old. A text that does not fit its box, or a label that stands on a box, is an error.
"""

import html
import pathlib
import re
import sys

import scenes

FOLDER = pathlib.Path(__file__).resolve().parent
WIDTH, MARGIN, ROW_GAP, GAP = 760, 16, 46, 40
TITLE, LINE = 14, 12  # heights of letters
LETTER = 0.56  # the mean width of a letter, in heights of letters
COLORS = {"": ("#f6f7f9", "#c3cad6"), "*": ("#e3ecff", "#2563eb"), "#": ("#e2f5ec", "#07875a")}
STYLE = ("text{font-family:system-ui,'Segoe UI',Roboto,'Helvetica Neue',sans-serif;fill:#1b2230;text-anchor:middle}"
         f".t{{font-size:{TITLE}px;font-weight:600}}.l{{font-size:{LINE}px;fill:#5f6b7d}}.a{{stroke:#5f6b7d;stroke-width:1.5;fill:none}}")


class SceneError(Exception):
    """One line: the picture, and what does not fit."""


class Box:
    def __init__(self, text, x, y, width):
        self.name, text = text.split(": ", 1)
        self.kind = text[0] if text[0] in COLORS else ""
        self.title, *self.lines = text[len(self.kind):].split("|")
        self.x, self.y, self.width, self.height = x, y, width, 20 + TITLE + len(self.lines) * (LINE + 5)

    def check(self):
        for text, size in [(self.title, TITLE * 1.06), *((line, LINE) for line in self.lines)]:
            if len(text) * size * LETTER > self.width - 12:
                raise SceneError(f"{text!r} does not fit its box of {self.width:.0f} pixels")

    def svg(self):
        fill, stroke = COLORS[self.kind]
        middle = self.x + self.width / 2
        top = self.y + (self.height - TITLE - len(self.lines) * (LINE + 5)) / 2
        parts = [f'<rect x="{self.x:g}" y="{self.y:g}" width="{self.width:g}" height="{self.height:g}" rx="8" fill="{fill}" stroke="{stroke}"/>']
        for i, text in enumerate([self.title, *self.lines]):
            parts.append(f'<text class="{"l" if i else "t"}" x="{middle:g}" y="{top + TITLE - 2 + i * (LINE + 5):g}">{html.escape(text)}</text>')
        return "".join(parts)


def ends(a, b):
    """Where an arrow leaves a box and reaches another one: beside each other in a row, or below each other."""
    if a.y < b.y + b.height and b.y < a.y + a.height:
        y = max(a.y, b.y) + min(a.height, b.height) / 2
        return ((a.x + a.width, y), (b.x, y)) if a.x < b.x else ((a.x, y), (b.x + b.width, y))
    low, high = max(a.x, b.x), min(a.x + a.width, b.x + b.width)
    narrow = min(a, b, key=lambda box: box.width)
    x = narrow.x + narrow.width / 2
    from_x, to_x = (x, x) if low <= x <= high else (a.x + a.width / 2, b.x + b.width / 2)
    return ((from_x, a.y + a.height), (to_x, b.y)) if a.y < b.y else ((from_x, a.y), (to_x, b.y + b.height))


def arrow(text, boxes):
    words, _, label = text.partition(": ")
    found = re.fullmatch(r"(\w+) (<?)-> (\w+)", words)
    if not found or not {found[1], found[3]} <= boxes.keys():
        raise SceneError(f"{text!r}: expected 'NAME -> NAME' of boxes")
    (x1, y1), (x2, y2) = ends(boxes[found[1]], boxes[found[3]])
    shorten = 7 / ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    dx, dy = (x2 - x1) * shorten, (y2 - y1) * shorten
    begin = ' marker-start="url(#b)"' if found[2] else ""
    line = f'<path class="a" d="M{x1 + dx * bool(found[2]):.1f} {y1 + dy * bool(found[2]):.1f}L{x2 - dx:.1f} {y2 - dy:.1f}" marker-end="url(#e)"{begin}/>'
    if not label:
        return line
    width, beside = len(label) * LINE * LETTER, abs(y1 - y2) < 1
    x, y = ((x1 + x2) / 2, y1 - 6) if beside else ((x1 + x2) / 2 + width / 2 + 8, (y1 + y2) / 2 + 4)
    for box in boxes.values():
        if x - width / 2 < box.x + box.width and box.x < x + width / 2 and y - LINE < box.y + box.height and box.y < y:
            raise SceneError(f"the label of {text!r} stands on the box {box.name}")
    return line + f'<text class="l" x="{x:g}" y="{y:g}">{html.escape(label)}</text>'


def picture(scene):
    boxes, y = {}, MARGIN
    for row in scene["rows"]:
        gap = scene.get("gap", GAP)
        width = (WIDTH - 2 * MARGIN - gap * (len(row) - 1)) / len(row)
        drawn = [Box(text, MARGIN + i * (width + gap), y, width) for i, text in enumerate(row)]
        for box in drawn:
            box.height = max(other.height for other in drawn)
            box.check()
            boxes[box.name] = box
        y += drawn[0].height + ROW_GAP
    height = y - ROW_GAP + MARGIN
    head = '<marker id="{}" viewBox="0 0 8 8" refX="1" refY="4" markerWidth="6" markerHeight="6" orient="{}"><path d="M0 0L8 4L0 8z" fill="#5f6b7d"/></marker>'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:g}" viewBox="0 0 {WIDTH} {height:g}">', f"<style>{STYLE}</style>",
             f"<defs>{head.format('e', 'auto')}{head.format('b', 'auto-start-reverse')}</defs>",
             f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:g}" rx="10" fill="#fff" stroke="#e2e5ea"/>',
             *(arrow(text, boxes) for text in scene["arrows"]), *(box.svg() for box in boxes.values()), "</svg>"]
    return "\n".join(parts) + "\n"


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        print("usage: draw.py [--check]", file=sys.stderr)
        return 2
    wrong = []
    for name, scene in scenes.SCENES.items():
        try:
            text = picture(scene)
        except SceneError as error:
            wrong.append(f"{name}: {error}")
            continue
        file = FOLDER / f"{name}.svg"
        if not sys.argv[1:]:
            file.write_text(text, encoding="utf-8")
        elif not file.is_file() or file.read_text(encoding="utf-8") != text:
            wrong.append(f"{name}.svg is old; run python3 docs/pictures/draw.py and commit the result")
    wrong += [f"{file.name}: scenes.py has no such picture" for file in sorted(FOLDER.glob("*.svg")) if file.stem not in scenes.SCENES]
    print("\n".join(wrong) if wrong else f"{len(scenes.SCENES)} pictures")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
