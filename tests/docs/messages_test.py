#!/usr/bin/env python3
"""Each message on docs/troubleshooting.md is one that the sources have: messages_test.py ROOT.

`...` stands for what differs from run to run; what is between must be in the texts of one folder, in which a message may be put together.
"""

import pathlib
import re
import sys

OF_OTHERS = {"undefined symbol: ",  # said by the dynamic linker, and by the compiler of Rust
             "cannot add ", "Result<", "cannot apply unary operator ", "binary assignment operation "}


def main(root):
    page = (root / "docs/troubleshooting.md").read_text()
    messages = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    texts = {}
    for path in [*root.glob("src/**/*.[ch]pp"), *root.glob("bindings/python/accel/*.py")]:
        # Texts that continue on the next line are one; the words of the languages between them are left out.
        joined = re.sub(r'"\s*f?"', "", path.read_text())
        texts[path.parent] = texts.get(path.parent, "") + joined
    wrong = []
    for message in messages:
        parts = [part for part in message.split("...") if part not in OF_OTHERS and re.search(r"\w{3}", part)]
        if parts and not any(all(part.strip(" ;:,'") in text for part in parts) for text in texts.values()):
            wrong.append(f"no source says: {message}")
    if len(messages) < 25:
        wrong.append(f"{len(messages)} messages were found on the page; expected at least 25")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
