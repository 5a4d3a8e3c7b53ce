# SPDX-License-Identifier: Apache-2.0
"""The reference of each language as Markdown, read from the sources of its binding: no build and no import is needed.

What is public, with its declaration and the comment before it (Python and Julia: the string), by class, type or file.
"""

import ast
import pathlib
import re
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Entries:
    """Declarations with their texts, in groups that keep their order."""

    def __init__(self, language):
        self.language = language
        self.groups = {}

    def add(self, group, declaration, text):
        self.groups.setdefault(group, []).append((declaration, text))

    def markdown(self):
        parts = []
        for group, entries in self.groups.items():
            parts.append(f"## {group}\n")
            for declaration, text in entries:
                parts.append(f"```{self.language}\n{one_argument_a_line(declaration, self.language)}\n```\n")
                if text:
                    parts.append(plain(text) + "\n")
        return "\n".join(parts)


def one_argument_a_line(declaration, language, width=100):
    """A declaration that is longer than a line, with each argument in a line of its own."""
    if "\n" in declaration or len(declaration) <= width or "(" not in declaration:
        return declaration
    begin = declaration.index("(") + 1
    arguments, depth, quote, last = [], 0, "", begin
    quotes = "\"'" if language == "python" else '"'  # a lifetime of Rust has one, too
    for i, letter in enumerate(declaration[begin:], begin):
        if quote or letter in quotes:
            quote = "" if letter == quote else quote or letter
        elif letter in ")]}" and depth == 0:
            arguments.append(declaration[last:i].strip())
            return declaration[:begin] + "".join(f"\n    {argument}," for argument in arguments)[:-1] + "\n" + declaration[i:]
        elif letter == "," and depth == 0:
            arguments.append(declaration[last:i].strip())
            last = i + 1
        else:
            depth += (letter in "([{") - (letter in ")]}")
    return declaration


def plain(text):
    """A comment as Markdown inside of a page: headings become words, links into the code become names."""
    text = re.sub(r"^```[\w,]+$", "```rust", text, flags=re.MULTILINE)
    text = re.sub(r"^#+ (.*)$", r"**\1.**", text, flags=re.MULTILINE)
    text = re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", text)
    text = re.sub(r"\[(`[^`\]]+`)\](?!\()", r"\1", text)
    return re.sub(r"^( {4,}|\t)", "", text, flags=re.MULTILINE) if "```" not in text else text


def python():
    package = ROOT / "bindings/python/accel"
    entries = Entries("python")
    trees = {}

    def tree(module):
        if module not in trees:
            name = module.replace(".", "/")
            path = next((path for file in (f"{name}.py", f"{name}/__init__.py") for path in package.rglob(file)), None)
            trees[module] = ast.parse(path.read_text()) if path else ast.Module([], [])
        return trees[module]

    def signature(function, skip_self):
        arguments = ast.unparse(function.args)
        if skip_self:
            arguments = re.sub(r"^(self|cls)(, )?", "", arguments)
        returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
        return f"{function.name}({arguments}){returns}"

    def add(group, node):
        text = ast.get_docstring(node) or ""
        if not isinstance(node, ast.ClassDef):
            return entries.add(group, signature(node, False), text)
        start = next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
        declaration = signature(start, True).replace("__init__", node.name, 1) if start else node.name
        entries.add(f"class {node.name}", declaration, text)
        for item in node.body:
            taken = ast.unparse(item.value) if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name) else ""
            taken = re.match(r"(?:staticmethod\()?(\w+)\.(\w+)\)?$", taken)  # name = staticmethod(module.function)
            if taken:
                function = next((other for other in tree(taken[1]).body if isinstance(other, ast.FunctionDef) and other.name == taken[2]), None)
                if function:
                    entries.add(f"class {node.name}", f"{node.name}.{signature(function, False)}", ast.get_docstring(function) or "")
            if isinstance(item, ast.FunctionDef) and not item.name.startswith("_"):
                kinds = [ast.unparse(decorator) for decorator in item.decorator_list]
                if any(kind.endswith(".setter") for kind in kinds):
                    continue
                shown = item.name if "property" in kinds else signature(item, "staticmethod" not in kinds)
                entries.add(f"class {node.name}", f"{node.name}.{shown}", ast.get_docstring(item) or "")

    listed = ast.parse((package / "__init__.pyi").read_text())
    for statement in listed.body:
        if not isinstance(statement, ast.ImportFrom) or not statement.module or statement.module == "typing":
            continue
        names = {name.name for name in statement.names}
        for node in tree(statement.module).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name in names:
                add("Functions", node)
    for module in ("generated.layers", "modules.layers", "modules.nn", "tensors.functional", "generated.optimizers", "training.optim", "generated.schedules",
                   "training.lr_scheduler", "generated.samplers", "data.sampler", "generated.datasets", "data.datasets", "parallel.collectives",
                   "tracking"):
        for node in tree(module).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_") and f"class {node.name}" not in entries.groups:
                add(f"Functions of {module.split('.')[-1]}", node)
    return entries


def commented(path, marker):
    """(comment before it, number, line) of each line of a file; comments are lines that begin with the marker."""
    text, lines = [], path.read_text().splitlines()
    for number, line in enumerate(lines):
        if line.strip().startswith(marker):
            text.append(line.strip()[len(marker):].removeprefix(" "))
        else:
            yield "\n".join(text), number, line, lines
            if not line.strip().startswith(("#[", "template <")):
                text = []


def declaration_from(lines, number, ends):
    """The declaration that begins in a line, on one line."""
    declared = ""
    for line in lines[number:number + 12]:
        declared += (" " if declared else "") + line.strip()
        found = re.search(ends, declared)
        if found:
            return re.sub(r"([(\[]) | (?=[)\]])", r"\1", declared[:found.start()].strip()).replace(",)", ")")
    return declared


def rust():
    entries = Entries("rust")
    for path in sorted((ROOT / "bindings/rust").glob("*/src/**/*.rs")):
        if "sys" in path.parts[-3] or "sys" in str(path.relative_to(ROOT).parts[2]):
            continue
        group = "Functions"
        for text, number, line, lines in commented(path, "///"):
            found = re.match(r"(?:unsafe )?impl(?:<[^{]*?>)? (?:[\w:<>, ']+ for )?&?(\w+).*\{$", line)
            if found:
                group = found[1]
            elif line == "}":
                group = "Functions"
            found = re.match(r" *pub (?:unsafe |const )*(?:fn|struct|enum|trait) (\w+)", line)
            if found and text:
                kind = re.search(r"struct|enum|trait", line)
                entries.add(found[1] if kind and line.startswith("pub") else group, declaration_from(lines, number, r" where| ?\{|;|(?<=\)) ?$"), text)
    entries.groups = dict(sorted(entries.groups.items()))
    return entries


def julia():
    entries = Entries("julia")
    folder = ROOT / "bindings/julia/src"
    for path in sorted(folder.glob("**/*.jl")):
        if path.name == "LibAccel.jl":
            continue
        for text, declared in re.findall(r'^ *(?:@doc )?"""(.*?)"""\n *([^\n]+)', path.read_text(), re.MULTILINE | re.DOTALL):
            text = textwrap.dedent(text).strip()
            signature = re.match(r"((?:    .*\n)+)\n?", text + "\n")
            if signature:
                declared, text = textwrap.dedent(signature[1]).strip(), text[signature.end():].strip()
            else:
                declared = re.sub(r" = .*| where .*| do .*", "", re.sub(r"^(?:function|macro) ", "", declared.strip()))
            group = "From the header" if path.parent.name == "generated" else path.stem.replace("_", " ").capitalize()
            entries.add(group, declared, text)
    return entries


def go():
    entries = Entries("go")
    for text, number, line, lines in commented(ROOT / "bindings/go/accel.go", "//"):
        found = re.match(r"func (?:\(\w+ \*?(\w+)\) )?([A-Z]\w*)|type ([A-Z]\w*)", line)
        if found and text:
            made = re.match(r"func New(\w+)\(", line)
            entries.add(found[1] or found[3] or (made and made[1]) or "Functions", declaration_from(lines, number, r" \{$|(?<=\w)$|(?<=\))$"), text)
    entries.groups = dict(sorted(entries.groups.items()))
    return entries


def cpp():
    entries = Entries("cpp")
    group, is_public, is_private_part = "Functions", True, False
    for text, number, line, lines in commented(ROOT / "include/accel.hpp", "//"):
        found = re.match(r"(?:template <[^>]*> )?(?:class|struct) (?:\[\[\w+\]\] )?(\w+)(?: final)?(?: : [^{]*)? ?\{", line)
        if "namespace detail" in line:
            is_public = not line.endswith("{")
        is_private_part = line == " private:" or is_private_part and not line.startswith((" public:", "}"))
        if not is_public or is_private_part:
            continue
        if found:
            group = found[1]
            entries.add(group, f"class {group}", text)
        elif line.startswith("}"):
            group = "Functions"
        elif re.match(r"  (?!return|if|for|while|else|detail|using|friend|template|check)[\w\[]", line) and "(" in line and group != "Functions":
            declared = declaration_from(lines, number, r"(?<!=) \{|(?<![= ])\{|;| : [\w:]+\(")
            if re.match(r"[\w:<>&*, \[\]]*\w+\(", declared) and "=" not in declared.split("(")[0]:
                entries.add(group, declared, text)
    return entries


LANGUAGES = {"python": (python, "bindings/python/accel/**/*.py"), "rust": (rust, "bindings/rust/*/src/**/*.rs"),
             "julia": (julia, "bindings/julia/src/**/*.jl"), "go": (go, "bindings/go/accel.go"), "cpp": (cpp, "include/accel.hpp")}


def markdown(language):
    return LANGUAGES[language][0]().markdown()


def sources(language):
    """What the page of a language depends on."""
    return [pathlib.Path(__file__).resolve(), *sorted(ROOT.glob(LANGUAGES[language][1]))]
