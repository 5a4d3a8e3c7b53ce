#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each guide, the tutorial and the page on the architecture have one picture, whose text says what it shows, and docs/pictures has what draw.py draws: pictures_test.py ROOT."""

import pathlib
import re
import subprocess
import sys
import unittest

DOCS = pathlib.Path(sys.argv.pop(1)).resolve() / "docs"
sys.dont_write_bytecode = True
sys.path.insert(0, str(DOCS / "pictures"))
import draw  # noqa: E402

PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)]*)\)")


class Pictures(unittest.TestCase):
    def test_each_guide_has_one(self):
        index = (DOCS / "index.md").read_text()
        section = index[index.index("## Guides"):index.index("## From other libraries")]
        guides = ["tutorial.md", "architecture.md", *re.findall(r"^- \[[^\]]*\]\((\w+\.md)\)", section, re.MULTILINE)]
        self.assertGreater(len(guides), 15)
        shown = []
        for guide in guides:
            pictures = PICTURE.findall((DOCS / guide).read_text())
            self.assertEqual([path for _, path in pictures], [f"pictures/{guide[:-3]}.svg"], guide)
            self.assertGreaterEqual(len(pictures[0][0].split()), 8, f"{guide}: say in a sentence what the picture shows")
            shown.append(pathlib.Path(pictures[0][1]).name)
        self.assertEqual(sorted(shown), sorted(file.name for file in (DOCS / "pictures").glob("*.svg")))

    def test_they_are_drawn_from_their_scenes(self):
        result = subprocess.run([sys.executable, DOCS / "pictures/draw.py", "--check"], capture_output=True, text=True, check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)

    def test_what_does_not_fit_is_refused(self):
        rows = [["a: A title that is too long for a third of a row", "b: B", "c: C"], ["d: D"]]
        for arrows, title, expected in (([], rows[0][0], "does not fit its box"), (["a -> c"], "a: A", ""), (["a -> x"], "a: A", "of boxes"),
                                        (["a -> b: a label wider than the gap"], "a: A", "stands on the box")):
            scene = {"rows": [[title, *rows[0][1:]], rows[1]], "arrows": arrows}
            with self.subTest(arrows=arrows, title=title):
                if not expected:
                    self.assertIn("</svg>", draw.picture(scene))
                else:
                    self.assertRaisesRegex(draw.SceneError, expected, draw.picture, scene)


if __name__ == "__main__":
    unittest.main()
