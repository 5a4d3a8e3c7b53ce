#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the programs in JavaScript and Java of docs/a_binding_in_an_hour.md, with the packages that they need from the registries.

usage: foreign_programs_trial.py ROOT LIBRARY     by hand, for it needs the network; what is not installed is left out
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PAGE = "docs/a_binding_in_an_hour.md"
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>page</groupId><artifactId>page</artifactId>
<version>1</version><dependencies><dependency><groupId>net.java.dev.jna</groupId><artifactId>jna</artifactId><version>5.14.0</version></dependency>
</dependencies></project>"""
EXPECTED = ["7", "Same takes 1 input, got 2"]


def run(command, folder, environment):
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def js(folder, environment):
    run(["npm", "install", "--silent", "koffi"], folder, environment)
    return run(["node", "page.js"], folder, environment)


def java(folder, environment):
    (folder / "pom.xml").write_text(POM)
    run(["mvn", "-q", "dependency:copy-dependencies", "-DoutputDirectory=jars"], folder, environment)
    shutil.move(folder / "page.java", folder / "Same.java")
    run(["javac", "-cp", "jars/*", "Same.java"], folder, environment)
    return run(["java", "-cp", "jars/*:.", "Same"], folder, environment)


def main(root, library):
    text = (pathlib.Path(root) / PAGE).read_text()
    for language, tool, trial in (("js", "npm", js), ("java", "mvn", java)):
        if shutil.which(tool) is None:
            print(f"{language}: left out, there is no {tool}")
            continue
        (program,) = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        with tempfile.TemporaryDirectory(prefix="accel-page-") as folder:
            (pathlib.Path(folder) / f"page.{language}").write_text(program)
            said = trial(pathlib.Path(folder), {**os.environ, "ACCEL_LIBRARY": library, "LIBACCEL": library})
        if said.split("\n")[:2] != EXPECTED:
            sys.exit(f"{language}: printed {said!r}; expected {EXPECTED}")
        print(f"{language}: works")


if __name__ == "__main__":
    main(*sys.argv[1:])
