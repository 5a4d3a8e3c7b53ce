# SPDX-License-Identifier: Apache-2.0
"""Types, constants and functions of unnamed namespaces of src/ that stand twice in one namespace with different meanings.

Sources that are compiled as one see the unnamed namespaces of each other, and which are depends on their sizes and on the number of processors.
"""

import re

TYPE = re.compile(r"(?:struct|class|enum class|enum) (\w+)\b(?!;)")
ALIAS = re.compile(r"using (\w+) = ")
CONSTANT = re.compile(r"(?:inline )?(?:constexpr|const) [^=({]*?\b(k[A-Z]\w*)\b")
FUNCTION = re.compile(r"[A-Za-z_][\w:<>,*& ]*[ *&](\w+)\(([^()]*)\) (?:noexcept )?\{")
PARAMETER = re.compile(r"\s*\b\w+$")
NAMESPACE = re.compile(r"namespace (?:(\S+) )?\{$")


def definitions(text):
    """(namespace, name, definition) of what stands at the beginning of a line in an unnamed namespace; the definition of an alias is its line.
    Functions with other types of parameters are others."""
    open_namespaces = []
    for line in text.splitlines():
        if begin := NAMESPACE.match(line):
            open_namespaces.append(begin[1])
        elif line.startswith("}  // namespace"):
            open_namespaces = open_namespaces[:-1]
        elif None in open_namespaces:
            above = "::".join(name for name in open_namespaces if name)
            if alias := ALIAS.match(line):
                yield above, alias[1], line
            elif found := TYPE.match(line) or CONSTANT.match(line):
                yield above, found[1], None
            elif function := FUNCTION.match(line):
                yield above, f"{function[1]}({', '.join(PARAMETER.sub('', one) for one in function[2].split(', '))})", None


def problems(root):
    """One line for each definition after the first one."""
    first = {}
    for file in sorted((root / "src").rglob("*.cpp")):
        name = file.relative_to(root)
        for above, word, definition in definitions(file.read_text()):
            earlier, there = first.setdefault((above, word), (name, definition))
            if earlier != name and (definition is None or definition != there):
                yield f"{name}: {above}::{word} of the unnamed namespace is in {earlier}, too; expected another name, for both may be compiled as one"
