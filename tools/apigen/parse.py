# SPDX-License-Identifier: Apache-2.0
"""Reads include/accel.h, with the files that it includes, by libclang and gives its description, the content of api/accel.json."""

import os
import pathlib
import re

import ctype
import sys

import documentation
import option

sys.path = [entry for entry in sys.path if entry]  # clang/ of the working directory is not the package
import clang.cindex  # noqa: E402
from clang.cindex import CursorKind, TypeKind  # noqa: E402

HERE = pathlib.Path(__file__).parent
ARGUMENTS = ["-x", "c", "-std=c99", "-DACCEL_APIGEN", "-nostdinc", f"-isystem{HERE / 'include'}",
             "--target=x86_64-linux-gnu"]
OWNERSHIP = ("owned", "borrowed", "takes")
NAMED_RESULTS = ("accel_status_t", "int64_t")  # of callbacks; other results are described as what they stand for
NUMBER = re.compile(r"^\(?(-?\d[\w.+-]*)( - 1)?\)?$")
TEXT = re.compile(r'^"([\w.{}]+)"$')
NO_PLAIN_NUMBER = re.compile(r"\(\w+_t\)|\b(?:U?INT\d+|DBL|FLT)_M(?:IN|AX)\b")
SECTION = re.compile(r"/\* =+\n \* (\d+)\. (.*?)\n \* =+ \*/", re.DOTALL)
PART = re.compile(r'#include "(accel/\w+\.h)"')
SINCE = re.compile(r"ACCEL_(?:SINCE|INLINE)\((\d+), (\d+)\)")


class HeaderError(Exception):
    """What is wrong with the header: FILE:LINE: one line."""


def numbered_lines(path):
    """(line, "FILE:LINE") of a header, its parts in the places where it includes them."""
    for number, line in enumerate(path.read_text().split("\n"), 1):
        part = PART.match(line)
        if part and (path.parent / part[1]).is_file():
            yield from numbered_lines(path.parent / part[1])
        else:
            yield line, f"{path.name if path.name == 'accel.h' else f'accel/{path.name}'}:{number}"


class Header:
    """A parsed header and its text, in which its parts stand where they are included."""

    def __init__(self, path):
        self.path = path
        self.lines, self.places = zip(*numbered_lines(path))
        self.text = "\n".join(self.lines)
        index = clang.cindex.Index.create()
        self.unit = index.parse(os.fspath(path), ARGUMENTS, unsaved_files=[(os.fspath(path), self.text)],
                                options=clang.cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD)
        for problem in self.unit.diagnostics:
            if problem.severity >= clang.cindex.Diagnostic.Error:
                raise HeaderError(f"{self.places[problem.location.line - 1]}: {problem.spelling}")
        self.sections = [(self.text.count("\n", 0, found.start()) + 1, int(found.group(1)), " ".join(
            found.group(2).replace("\n *", " ").split())) for found in SECTION.finditer(self.text)]

    def cursors(self, *kinds):
        """The header's own declarations of some kinds, in order."""
        for cursor in self.unit.cursor.get_children():
            if cursor.kind in kinds and cursor.location.file and cursor.location.file.name == os.fspath(self.path):
                yield cursor

    def section(self, line):
        return max((number for start, number, _ in self.sections if start <= line), default=0)

    def source(self, cursor):
        return self.text[cursor.extent.start.offset:cursor.extent.end.offset]

    def comment_above(self, line):
        """The plain comment that ends on the line above, "" if there is none, or if it is that of what stands before it."""
        if not self.lines[line - 2].rstrip().endswith("*/"):
            return ""
        start = line - 2
        while not re.search(r"(?:^|\s)/\*", self.lines[start]):
            start -= 1
        if not self.lines[start].lstrip().startswith("/*"):
            return ""
        return documentation.plain("\n".join(self.lines[start:line - 1]))

    def type_above(self, line):
        """The integer type that the paragraph of a line begins with: its constants are values of that. Else None."""
        while line > 0 and self.lines[line - 1].strip():
            found = re.match(r"typedef int\w+ (accel_\w+_t);", self.lines[line - 1])
            if found:
                return found.group(1)
            line -= 1
        return None

    def comment_behind(self, line):
        """The comment behind a declaration on its line, or the one above it."""
        found = re.search(r"[;,\s]\s*(/\*.*)$", self.lines[line - 1])
        if not found:
            return self.comment_above(line)
        text, last = found.group(1), line
        while "*/" not in text:
            text += "\n" + self.lines[last]
            last += 1
        return documentation.plain(text[:text.index("*/") + 2])


def type_of(clang_type):
    """{c, base, pointers, const}: `const` says that what the outermost pointer leads to is const."""
    base, pointers, const = clang_type, 0, False
    while base.kind == TypeKind.POINTER:
        base, pointers = base.get_pointee(), pointers + 1
        const = base.is_const_qualified() if pointers == 1 else const
    name = base.spelling.replace("const ", "").replace(" const", "").strip()
    return {"c": clang_type.spelling, "base": name, "pointers": pointers, "const": const}


def ownership_of(cursor):
    marks = {child.spelling for child in cursor.get_children() if child.kind == CursorKind.ANNOTATE_ATTR}
    return next((mark for mark in OWNERSHIP if mark in marks), ""), "nullable" in marks


def direction_of(name, kind, handles):
    """Outputs begin with `out`; other pointers to what is not const are changed in place."""
    if name.startswith("out") or name == "results":
        return "out" if kind["pointers"] else "in"
    plain_data = kind["pointers"] == 1 and not kind["const"] and kind["base"] not in handles | {"void"}
    return "inout" if plain_data and kind["base"].removeprefix("struct ") not in ctype.FOREIGN else "in"


def parameters_of(cursors, text, handles):
    found = []
    for cursor in cursors:
        ownership, nullable = ownership_of(cursor)
        kind = type_of(cursor.type)
        found.append({"name": cursor.spelling, "type": kind, "direction": direction_of(cursor.spelling, kind, handles),
                      "ownership": ownership, "nullable": nullable, "length": text["lengths"].get(cursor.spelling),
                      "doc": text["parameters"].get(cursor.spelling, "")})
    return found


def constants(header):
    for cursor in header.cursors(CursorKind.MACRO_DEFINITION):
        definition = header.source(cursor)
        if "(" in definition.split()[0] or not cursor.spelling.startswith("ACCEL_") or cursor.spelling.startswith("ACCEL_OPTIONS_"):
            continue
        body = definition.partition(" ")[2].strip()
        value, text = NUMBER.match(body), TEXT.match(body)
        if not value and "{" not in definition and NO_PLAIN_NUMBER.search(definition):
            raise HeaderError(f"{header.places[cursor.location.line - 1]}: {cursor.spelling} has a cast or a macro of another header, which "
                              "generators of other languages drop; for example #define ACCEL_X (-5)")
        if not value and not text:
            continue
        line = cursor.location.line
        behind = "/*" in header.lines[line - 1]
        constant = {"name": cursor.spelling, "section": header.section(line), "line": line,
                    "doc": header.comment_behind(line) if behind else ""}
        if text:
            yield {**constant, "value": text.group(1), "type": "text"}
            continue
        is_float = re.search(r"[.e]", value.group(1))
        number = float(value.group(1)) if is_float else int(value.group(1)) - (1 if value.group(2) else 0)
        kind = "double" if is_float else "int64_t" if number == -2**63 else header.type_above(line) or "int32_t"
        yield {**constant, "value": number, "type": kind}


def initial_values(header):
    """{macro: [initial value of each field, as in C]} of the ACCEL_*_INIT macros."""
    found = {}
    for cursor in header.cursors(CursorKind.MACRO_DEFINITION):
        if cursor.spelling.endswith("_INIT"):
            body = header.source(cursor).partition("{")[2].rpartition("}")[0].replace("\\\n", " ")
            found[cursor.spelling] = [" ".join(value.split()) for value in body.split(",")]
    return found


def structs(header):
    initial = initial_values(header)
    for cursor in header.cursors(CursorKind.STRUCT_DECL):
        if not cursor.is_definition():
            continue
        name = cursor.spelling
        macro = name.upper() + "_INIT"
        values = initial.get(macro, [])
        fields = []
        for place, field in enumerate(cursor.type.get_fields()):
            kind, members = type_of(field.type), []
            if field.type.get_canonical().get_declaration().kind == CursorKind.UNION_DECL:
                kind = {"c": "union", "base": "union", "pointers": 0, "const": False}
                members = [{"name": member.spelling, "type": type_of(member.type)}
                           for member in field.type.get_canonical().get_fields()]
            fields.append({"name": field.spelling, "type": kind, "offset": field.get_field_offsetof() // 8,
                           "size": field.type.get_size(), "line": field.location.line,
                           "doc": header.comment_behind(field.location.line),
                           "initial": values[place] if place < len(values) else None})
            if members:
                fields[-1]["members"] = members
        text = documentation.read(header.comment_above(cursor.location.line))
        yield {"name": name + "_t", "section": header.section(cursor.location.line), "line": cursor.location.line,
               "size": cursor.type.get_size(), "alignment": cursor.type.get_align(),
               "doc": " ".join((text["summary"] + " " + text["description"]).split()), "reference": text["reference"],
               "fields": fields, "init_macro": macro if macro in initial else None}


def handles(header):
    """Opaque structs of our own."""
    for cursor in header.cursors(CursorKind.TYPEDEF_DECL):
        target = cursor.underlying_typedef_type.get_canonical().get_declaration()
        if target.kind == CursorKind.STRUCT_DECL and not target.is_definition() and target.get_definition() is None:
            yield {"name": cursor.spelling, "struct": target.spelling, "section": header.section(cursor.location.line),
                   "line": cursor.location.line, "doc": header.comment_behind(cursor.location.line), "retain": None,
                   "release": None}


def aliases(header):
    """Named numbers: typedef int32_t accel_dtype_t."""
    for cursor in header.cursors(CursorKind.TYPEDEF_DECL):
        target = cursor.underlying_typedef_type
        if target.kind in (TypeKind.ELABORATED, TypeKind.TYPEDEF) and target.spelling in ("int32_t", "int64_t"):
            yield {"name": cursor.spelling, "type": target.spelling, "section": header.section(cursor.location.line),
                   "line": cursor.location.line, "doc": header.comment_above(cursor.location.line)}


def callbacks(header, opaque):
    for cursor in header.cursors(CursorKind.TYPEDEF_DECL):
        kind = cursor.underlying_typedef_type
        if kind.kind != TypeKind.POINTER or kind.get_pointee().get_canonical().kind != TypeKind.FUNCTIONPROTO:
            continue
        text = documentation.read(cursor.raw_comment)
        given = [child for child in cursor.get_children() if child.kind == CursorKind.PARM_DECL]
        yield {"name": cursor.spelling, "section": header.section(cursor.location.line), "line": cursor.location.line,
               "summary": text["summary"], "description": text["description"], "threads": text["threads"],
               "parameters": parameters_of(given, text, opaque),
               "returns": {"type": type_of(kind.get_pointee().get_canonical().get_result()
                                           if not cursor.underlying_typedef_type.spelling.startswith(NAMED_RESULTS)
                                           else kind.get_pointee().get_result()), "doc": text["returns"]}}


def functions(header, opaque, status_names):
    for cursor in header.cursors(CursorKind.FUNCTION_DECL):
        line = header.text.rfind("\n", 0, cursor.extent.start.offset) + 1
        declaration = header.text[line:cursor.extent.end.offset]
        since = SINCE.search(declaration)
        inline = cursor.is_definition()
        text = documentation.read(cursor.raw_comment)
        ownership, _ = ownership_of(cursor)
        yield {"name": cursor.spelling, "section": header.section(cursor.location.line), "line": cursor.location.line,
               "since": ".".join(since.groups()) if since else "", "inline": inline,
               "nodiscard": "ACCEL_NODISCARD" in declaration,
               "summary": text["summary"], "description": text["description"],
               "parameters": parameters_of(cursor.get_arguments(), text, opaque),
               "documented": sorted(text["parameters"]),
               "returns": {"type": type_of(cursor.result_type), "ownership": ownership, "doc": text["returns"]},
               "statuses": documentation.statuses(text["returns"], status_names), "threads": text["threads"],
               "waits": text["waits"], "reference": text["reference"]}


def describe(path):
    """The whole header as data."""
    header = Header(path)
    known = list(constants(header))
    opaque = list(handles(header))
    names = {handle["name"] for handle in opaque}
    status_names = [constant["name"] for constant in known if constant["type"] == "accel_status_t"]
    found = list(functions(header, names, status_names))
    declared = {function["name"] for function in found}
    for handle in opaque:
        for verb in ("retain", "release"):
            name = f"{handle['struct']}_{verb}"
            handle[verb] = name if name in declared else None
    records = list(structs(header))
    for record in records:
        if not option.is_options(record):
            record["init_macro"] = None
    version = {constant["name"]: constant["value"] for constant in known}
    api = {"version": ".".join(str(version[f"ACCEL_VERSION_{part}"]) for part in ("MAJOR", "MINOR", "PATCH")),
           "sections": [{"number": number, "title": title} for _, number, title in header.sections],
           "constants": known, "aliases": list(aliases(header)), "handles": opaque, "structs": records,
           "callbacks": list(callbacks(header, names)), "functions": found}
    api["wrong_options"] = list(option.describe(api))
    api["places"] = header.places
    return api
