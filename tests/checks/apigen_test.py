#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/apigen on small headers: each convention that is broken is found, with the file, the line, the rule and an example."""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "apigen"))
try:
    import parse
except ImportError:
    print("skipped: no libclang for this Python; tools/setup.sh --develop installs it")
    sys.exit(77)
import ctype
import documentation
import emit_julia
import emit_julia_methods
import emit_options_init
import emit_python
import emit_python_methods
import emit_python_settings
import emit_rust
import emit_rust_closures
import emit_rust_functions
import emit_stubs
import emit_swig
import function_shape
import lint
import rust_types

HEADER = """#include <stddef.h>
#include <stdint.h>
#define ACCEL_VERSION_MAJOR 0
#define ACCEL_VERSION_MINOR 1
#define ACCEL_VERSION_PATCH 0
#define ACCEL_SINCE(major, minor)
#define ACCEL_NODISCARD
#define ACCEL_OWNED __attribute__((annotate("owned")))
#define ACCEL_NULLABLE __attribute__((annotate("nullable")))
#define ACCEL_UNSET (-2147483647 - 1)
#define ACCEL_UNSET_DOUBLE (-17976931348623157e292)
/* ==========
 * 1. Things
 * ========== */
/* 0: success. */
typedef int32_t accel_status_t;
#define ACCEL_OK 0
#define ACCEL_ERROR_NOT_FOUND (-5)

/* Yes or no. */
typedef int32_t accel_flag_t;

/* Colors. */
typedef int32_t accel_color_t;
#define ACCEL_COLOR_RED 0
#define ACCEL_COLOR_BLUE 1

typedef struct accel_thing accel_thing_t; /* something */
/** Ends a life. @param user_data Whose. @threads any */
typedef void (*accel_destroy_fn)(void *user_data);
/** Looks at a thing. @param thing The thing. @param user_data Handed to the callback. @return ACCEL_OK. @threads caller */
typedef accel_status_t (*accel_look_fn)(accel_thing_t *thing, void *user_data);
/* How a thing is made. */
typedef struct accel_thing_options {
  size_t struct_size;
  double weight;  /* In kilograms. In (0, inf). Variable ACCEL_WEIGHT. Default 1 */
  accel_color_t color;  /* Default RED */
  accel_flag_t heavy;  /* Default: as it weighs */
  int32_t count;  /* In [1, inf). Required */
  int32_t reserved;
} accel_thing_options_t;
#define ACCEL_THING_OPTIONS_INIT {sizeof(accel_thing_options_t), ACCEL_UNSET_DOUBLE, ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET, 0}
/** Makes a thing. It is new. @param sizes [n_sizes] Sizes. @param n_sizes Their number. @param out The thing.
 * @return ACCEL_OK or NOT_FOUND. @threads any, waits @accelerate Thing */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_thing_create(const int64_t *ACCEL_NULLABLE sizes, size_t n_sizes, accel_thing_t *ACCEL_OWNED *out);
/** Looks. @param thing A thing. @param look The function. @param user_data,destroy Its own. @return ACCEL_OK. @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_thing_look(
    accel_thing_t *thing, accel_look_fn look, void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy);
/** Removes an owner. @param thing A thing. @threads any */
ACCEL_SINCE(0, 1) void accel_thing_release(accel_thing_t *ACCEL_NULLABLE thing);
"""

# What stands on the line of a declaration.
CALLBACK, COLOR, CREATE, HANDLE = "(*accel_look_fn)(", "accel_color_t color;", "accel_thing_create(", "struct accel_thing accel_thing_t;"
HEAVY, LOOK, OPTIONS, WEIGHT = " heavy;", "accel_thing_look(", "struct accel_thing_options {", "double weight;"

# What is replaced, by what, the rule that it breaks, a word of the message, and what stands on the line that it names.
BREACHES = [
    ("accel_thing_look(", "look_at_thing(", "name", "look_at_thing", "look_at_thing("),
    ("/* How a thing", "typedef int32_t accel_shade;\n/* How a thing", "name", "accel_shade", "int32_t accel_shade;"),
    ("ACCEL_COLOR_BLUE 1", "ACCEL_COLOR_Blue 1", "name", "ACCEL_COLOR_Blue", "ACCEL_COLOR_Blue"),
    ("accel_thing_t *ACCEL_OWNED *out", "accel_thing_t **out", "ownership", "output out", CREATE),
    ("  size_t struct_size;\n  double weight;", "  double first; /* In [0, inf). Default 0 */\n  size_t struct_size;\n  double weight;", "options", "first", OPTIONS),
    ("ACCEL_UNSET_DOUBLE, ACCEL_UNSET, ", "0, ACCEL_UNSET, ", "options", "sets weight to 0", OPTIONS),
    ("#define ACCEL_THING_OPTIONS_INIT", "#define ACCEL_THING_INIT", "options", "INIT macro", OPTIONS),
    ("  int32_t reserved;\n", "", "padding", "4 unnamed bytes", OPTIONS),
    (" Default RED", "", "option", "color is wrong: it does not end with a default", COLOR),
    ("Default RED", "Default GREEN", "option", "the default GREEN is the end of 0 of ACCEL_COLOR_RED, ACCEL_COLOR_BLUE", COLOR),
    ("In (0, inf). ", "", "option", "a number needs its interval", WEIGHT),
    ("In (0, inf)", "In (2, 0)", "option", "the interval from 2 to 0 is empty", WEIGHT),
    ("In (0, inf)", "In (0, many)", "option", "an end of the interval is many", WEIGHT),
    ("Default 1 ", "Default 0 ", "option", "the default 0 is not within the interval", WEIGHT),
    ("Default 1 ", "Default one ", "option", "the default is one", WEIGHT),
    ("Default: as it weighs", "In [0, 1]. Default 0", "option", "a flag has no interval", HEAVY),
    ("Default: as it weighs", "Default 2", "option", "the default of a flag is 2", HEAVY),
    ("accel_flag_t heavy;", "float heavy;", "option", "float is not a type of options", HEAVY),
    ("Default RED", "Variable ACCEL_WEIGHT. Default RED", "option", "color has the variable ACCEL_WEIGHT of accel_thing_options_t.weight", COLOR),
    ("Variable ACCEL_WEIGHT", "Variable ACCEL_SHARED_MEMORY", "option", "weight has the variable ACCEL_SHARED_MEMORY of environment.md.in", WEIGHT),
    ("Variable ACCEL_WEIGHT", "Variable accel_weight", "option", "weight is wrong: it names no variable", WEIGHT),
    ("Variable ACCEL_WEIGHT", "Variable ACCEL-WEIGHT", "option", "weight is wrong: it names no variable", WEIGHT),
    ("Variable ACCEL_WEIGHT", "variable ACCEL_WEIGHT", "option", "weight is wrong: it names no variable", WEIGHT),
    ("  /* Default: as it weighs */", "", "option", "heavy is wrong: it does not end with a default", HEAVY),
    ("In [1, inf). Required", "In [1, 3]. Default 1.5", "option", "count is wrong: the default is 1.5, expected a whole number", "int32_t count;"),
    ("void accel_thing_release(", "void accel_thing_forget(", "release", "0 _release functions", HANDLE),
    ("accel_thing_t *ACCEL_NULLABLE thing);", "accel_thing_t *thing);", "release", "take NULL", "accel_thing_release("),
    (", void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy", "", "callback", "user_data and destroy", LOOK),
    ("(*accel_look_fn)(accel_thing_t *thing, void *user_data)", "(*accel_look_fn)(accel_thing_t *thing)", "callback", "accel_look_fn", CALLBACK),
    ("size_t n_sizes, accel", "_Bool quick, size_t n_sizes, accel", "by value", "_Bool", CREATE),
    ("size_t n_sizes, accel", "accel_thing_options_t options, size_t n_sizes, accel", "by value", "accel_thing_options_t", CREATE),
    ("n_sizes, accel_thing_t *ACCEL_OWNED *out)", "n_sizes, accel_thing_t *ACCEL_OWNED *out, int32_t late)", "order", "late", CREATE),
    ("[n_sizes] Sizes.", "Sizes.", "array", "sizes", CREATE),
    ("[n_sizes] Sizes.", "[count] Sizes.", "array", "count", CREATE),
    ("/** Looks. ", "/** ", "documentation", "no sentence", LOOK),
    ("@param thing A thing. @param look", "@param look", "documentation", "does not explain thing", LOOK),
    ("@param look The function.", "@param look The function. @param seen Gone.", "documentation", "seen", LOOK),
    ("ACCEL_OK or NOT_FOUND.", "0 or less.", "documentation", "names no status", CREATE),
    ("ACCEL_OK or NOT_FOUND.", "ACCEL_OK or an error.", "documentation", "an error", CREATE),
    ("@threads any, waits", "", "documentation", "@threads", CREATE),
    (" @threads caller", "", "documentation", "accel_look_fn", CALLBACK),
    (" /* something */", "", "documentation", "accel_thing_t", HANDLE),
    ("ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t\naccel_thing_create", "ACCEL_NODISCARD accel_status_t\naccel_thing_create",
     "since", "accel_thing_create", CREATE),
    ("ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_thing_look", "ACCEL_SINCE(0, 1) accel_status_t accel_thing_look",
     "since", "ACCEL_NODISCARD", LOOK),
]


def write_languages(folder, file="api/languages.yaml", **parts):
    """A table of api/, for JSON is YAML."""
    (pathlib.Path(folder) / file).parent.mkdir(parents=True)
    (pathlib.Path(folder) / file).write_text(json.dumps(parts))


class Header(unittest.TestCase):
    def describe(self, text, **parts):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "accel.h"
            file.write_text(text)
            (file.parent / "accel").mkdir()
            for name, part in parts.items():
                (file.parent / f"accel/{name}.h").write_text(part)
            return parse.describe(file)

    # Regression: a field without a comment had the one of the field above it; a misspelt variable of an option was none; an
    # integer's default of 1.5 was accepted; wrong names of constants had line 122 of accel.h.
    def test_every_breach_is_found(self):
        for old, new, rule, word, place in BREACHES:
            with self.subTest(rule=rule, new=new):
                self.assertIn(old, HEADER)
                header = HEADER.replace(old, new)
                (number,) = [number for number, line in enumerate(header.split("\n"), 1) if place in line]
                found = [line for line in lint.lint(self.describe(header)) if f" {rule}: " in line and word in line]
                self.assertEqual(len(found), 1, found)
                self.assertRegex(found[0], rf"^accel\.h:{number}: [a-z ]+: .+; for example .+")

    def test_a_header_that_follows_the_conventions(self):
        self.assertEqual(list(lint.lint(self.describe(HEADER))), [])

    def test_the_line_is_that_of_the_declaration(self):
        text = HEADER.replace("@param thing A thing. @param look", "@param look")
        line = text[:text.index("accel_thing_look(")].count("\n") + 1
        self.assertIn(f"accel.h:{line}: ", next(iter(lint.lint(self.describe(text)))))

    def test_the_line_in_a_part_is_that_of_the_part(self):
        part = "/** Looks. @param thing A thing. @return ACCEL_OK. @threads any */\nint32_t accel_thing_see(accel_thing_t *thing);\n"
        found = list(lint.lint(self.describe(HEADER + '#include "accel/thing.h"\n', thing=part)))
        self.assertTrue(found)
        self.assertTrue(all(line.startswith("accel/thing.h:2: ") for line in found), found)
        part = "#define ACCEL_Thing 1\ntypedef int32_t accel_shade;\n"
        found = list(lint.lint(self.describe(HEADER + '#include "accel/thing.h"\n', thing=part)))
        self.assertEqual([line.split(" is not ")[0] for line in found], ["accel/thing.h:1: name: ACCEL_Thing", "accel/thing.h:2: name: accel_shade"])

    def test_what_is_no_c_in_a_part(self):
        part = "\n\nint32_t accel_broken(;\n"
        with self.assertRaisesRegex(parse.HeaderError, r"^accel/thing\.h:3: "):
            self.describe(HEADER + '#include "accel/thing.h"\n', thing=part)

    def test_the_macros_that_unset_options(self):
        written = emit_options_init.header(self.describe(HEADER))
        text = " ".join(written[written.index("#define"):].replace("\\\n", " ").split())
        self.assertRegex(text, r'^#define ACCEL_OPTIONS_THING "accel_thing_options_t" #define ACCEL_\w+_INIT \{sizeof\(accel_\w+_t\), ACCEL_UNSET_DOUBLE, ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET, 0\}$')

    def test_no_c(self):
        with self.assertRaisesRegex(parse.HeaderError, r"accel\.h:\d+: "):
            self.describe(HEADER + "int32_t accel_broken(\n")

    def test_what_is_described(self):
        create = {function["name"]: function for function in self.describe(HEADER)["functions"]}["accel_thing_create"]
        sizes, count, out = create["parameters"]
        self.assertEqual((sizes["length"], sizes["nullable"], sizes["direction"]), ("n_sizes", True, "in"))
        self.assertEqual((count["type"]["c"], out["direction"], out["ownership"]), ("size_t", "out", "owned"))
        self.assertEqual((create["summary"], create["description"]), ("Makes a thing.", "It is new."))
        self.assertEqual((create["statuses"], create["threads"], create["waits"]), (["ACCEL_OK", "ACCEL_ERROR_NOT_FOUND"], "any", True))
        self.assertEqual((create["since"], create["section"], create["reference"]), ("0.1", 1, "Thing"))

    def roles(self, declaration):
        api = self.describe(HEADER + declaration)
        return [role for _, role, _ in function_shape.roles(api["functions"][-1], rust_types.Api(api))]

    def test_what_parameters_are(self):
        text = "/** Does. @param things,names,values [n] Inputs. @return ACCEL_OK. @threads any */\n"
        self.assertEqual(self.roles(text + "accel_status_t accel_do(accel_thing_t *const *things, const char *const *names, const double *values, "
                                    "size_t n, accel_color_t color, const accel_thing_options_t *options, const char *path, accel_thing_t **out);"),
                         ["handles", "texts", "numbers", "length", "number", "options", "text", "out_handle"])
        self.assertEqual(self.roles(text + "accel_status_t accel_do(accel_thing_t *thing, accel_look_fn look, void *user_data, "
                                    "accel_destroy_fn destroy, int64_t *out_count, const void *memory, const int64_t **out_shape);"),
                         ["handle", "callback", "user_data", "destroy", "out_number", "address", "out_dimensions"])
        with self.assertRaises(function_shape.Unsupported):
            self.roles(text + "accel_status_t accel_do(int32_t ***things);")

    def functions_of_rust(self, header, table):
        with tempfile.TemporaryDirectory() as folder:
            write_languages(folder, rust={"flags": {"quick": ["Pace", "Quick", "Slow"]}, **table})
            return emit_rust_functions.survey(self.describe(header), pathlib.Path(folder))

    def test_functions_of_rust(self):
        header = HEADER + """/** Its weight. @param thing A thing. @param unit A text. @param quick 1: at once. @param out The weight.
 * @return ACCEL_OK or NOT_FOUND. @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_thing_weigh(const accel_thing_t *thing, const char *ACCEL_NULLABLE unit, int32_t quick, double *out);
"""
        texts, reasons = self.functions_of_rust(header, {"names": {"accel_thing_create": "new"}, "by_hand": {"accel_thing_look": "it is seldom"}})
        self.assertEqual(reasons["accel_thing_look"], "it is seldom")
        (_, _, owner, name, text), (*_, weigh) = texts
        self.assertEqual((owner, name), ("Thing", "new"))
        self.assertIn("pub fn new(sizes: &[i64]) -> Result<Thing>", text)
        self.assertIn("made(|out| unsafe { sys::accel_thing_create(first(sizes), sizes.len(), out) })", text)
        self.assertIn("# Errors\n    /// NotFound.", text)
        self.assertIn("pub fn weigh(&self, unit: Option<&str>, quick: Pace) -> Result<f64>", weigh)
        self.assertIn("/// * `quick`: At once.", weigh)

    def test_closures_of_rust(self):
        header = HEADER.replace("1. Things", "1. Modules")
        for word, bound, handed in (("", "FnMut(&Thing) -> CallbackResult + Send + 'static", "Exclusive::new(function)"),
                                    ("again", "Fn(&Thing) -> CallbackResult + Send + 'static", "function"),
                                    ("shared", "Fn(&Thing) -> CallbackResult + Send + Sync + 'static", "function")):
            texts, reasons = self.functions_of_rust(header, {"closures": {word: ["accel_look_fn"]}} if word else {})
            text = next(text for name, *_, text in texts if name == "accel_thing_look")
            self.assertIn(f"pub fn look<F>(&self, look: F) -> Result<()>\n    where\n        F: {bound},\n    {{\n", text)
            self.assertIn("let (call, data, destroy) = crate::module::closures::look(look);\n", text)
            self.assertIn("sys::accel_thing_look(self.as_raw(), call, data, destroy)", text)
            self.assertIn("/// * `look(thing)`: The function. Looks at a thing. `thing`: The thing.", text)
            known = rust_types.Api(self.describe(header))
            entries = {"accel_look_fn": {"held": word or None}}
            (made,) = emit_rust_closures.emit(known.api, emit_rust_closures.closures(known.api, known, entries)).values()
            self.assertIn(f"F: {bound},", made)
            self.assertIn(f"hand_over({handed})", made)
            self.assertIn("unsafe extern \"C\" fn call<F>(thing: *mut sys::accel_thing_t, user_data: *mut c_void) -> i32\n", made)
            self.assertIn("(&Lent::new(Thing::from_raw(thing)))", made)
        self.assertIn("accel_thing_look", self.functions_of_rust(header, {"by_hand": {"accel_look_fn": "it is seldom"}})[1])

    def test_a_function_of_the_table_that_is_not_there(self):
        with self.assertRaisesRegex(SystemExit, "languages.yaml has accel_thing_melt for Rust, which the header has not"):
            self.functions_of_rust(HEADER, {"reads": ["accel_thing_melt"]})

    def made_after(self, back_end, header, **tables):
        """The texts that a back end makes with a table of its own."""
        with tempfile.TemporaryDirectory() as folder:
            write_languages(folder, **tables)
            return "".join(back_end.emit(self.describe(header), pathlib.Path(folder)).values())

    def test_classes_of_python(self):
        made = HEADER + """/** Heats a thing. @param kelvin How much; ACCEL_UNSET_DOUBLE: a little. @param quick 1: at once. @param options NULL: defaults.
 * @param out The thing. @return ACCEL_OK. @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_thing_heat(
    double kelvin, int32_t quick, const accel_thing_options_t *ACCEL_NULLABLE options, accel_thing_t *ACCEL_OWNED *out);
"""
        section = {"title": "Things.", "imports": "", "prefix": "accel_thing_", "base": "Thing", "members": "", "self": "self", "more": "",
                   "call": "{function}({arguments})", "rows": "Hot = heat(Kelvin=None, quick=True, count) | weight = 2 * count\n"}
        text = self.made_after(emit_python, made, python={"classes": {"things": section}})
        self.assertIn('def __init__(self, Kelvin: Optional[float] = None, quick: bool = True, count: int, color: str = "red", '
                      "heavy: Optional[bool] = None):", text)
        self.assertIn("capi.accel_thing_heat(capi.ACCEL_UNSET_DOUBLE if Kelvin is None else Kelvin, int(quick),", text)
        self.assertIn("dict(weight=2 * count, color=color, heavy=heavy, count=count)", text)
        self.assertIn("Kelvin: How much; None: a little.", text)
        self.assertIn('("accel_thing_options_t", "color"): "color"', text)
        for wrong in ("Hot = melt(quick)", "Hot"):
            with self.assertRaisesRegex(SystemExit, f"'{wrong.replace('(', '.').replace(')', '.')}', expected NAME = FUNCTION"):
                self.made_after(emit_python, made, python={"classes": {"things": {**section, "rows": wrong}}})

    def test_methods_of_python(self):
        made = HEADER + """/** Whether it is warm. @param thing A thing. @param out 1: it is. @return ACCEL_OK or NOT_FOUND. @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_thing_is_warm(const accel_thing_t *thing, int32_t *out);
/** Warms. @param thing A thing. @param kelvin How much. @param quick 1: at once. @return ACCEL_OK. @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_thing_warm(accel_thing_t *thing, double kelvin, int32_t quick);
"""
        section = {"prefix": "accel_thing_", "object": "self.handle", "rows": "heat = warm(quick=False) | kelvin = 2.0", "properties": "is_warm()"}
        text = self.made_after(emit_python_methods, made, python={"methods": {"Thing": section}})
        self.assertIn('class Thing:\n    __slots__ = ()\n\n    def heat(self, quick: bool = False) -> None:\n        """Warms.', text)
        self.assertIn("        capi.accel_thing_warm(self.handle, 2.0, int(quick))\n", text)
        self.assertIn('    @property\n    def is_warm(self) -> bool:\n        """Whether it is warm."""\n        return bool(capi.accel_thing_is_warm(self.handle))\n', text)
        section = {"prefix": "accel_thing_", "rows": "warm(thing, kelvin, quick) | thing = thing.handle"}
        text = self.made_after(emit_python_methods, made, python={"methods": {"things": section}})
        self.assertIn("def warm(thing, kelvin: float, quick: bool) -> None:\n", text)

    def test_options_in_the_stub_of_python(self):
        (text,) = emit_stubs.emit(self.describe(HEADER), None).values()
        self.assertIn('class accel_thing_options_t:\n    """How a thing is made.\n\n    weight: In kilograms. In (0, inf). Variable ACCEL_WEIGHT. Default 1\n', text)
        self.assertIn("\n    count: int\n    def __init__(self, *, weight: float = 1, color: int = ACCEL_COLOR_RED, heavy: Optional[int] = None, "
                      "count: Optional[int] = None) -> None: ...\n", text)
        self.assertNotIn("reserved", text)

    def test_settings_of_python(self):
        """What the header adds to a struct is a field of the dataclass that has a *, with its variable."""
        made = HEADER.replace("  int32_t reserved;", "  int32_t reserved;\n  const char *label;  /* Variable ACCEL_LABEL. Default: none */").replace(
            "ACCEL_UNSET, 0}", "ACCEL_UNSET, 0, NULL}")
        thing = {"text": "How.", "base": "KwargsHandler", "options": "accel_thing_options_t", "without": "heavy",
                 "fields": "color, size: int = 3, parts: dict = {}, name: str = ..., *", "variables": "size SIZE integer 3"}
        enums = {"Color": {"base": "BaseEnum", "choices": "accel_color_t"}, "Kind": {"base": "NamedEnum", "members": "NO OTHER:other"}}
        text = self.made_after(emit_python_settings, made, file="api/python.yaml", settings={"Thing": thing}, enums=enums)
        self.assertIn('@dataclass\nclass Thing(KwargsHandler):\n    """How."""\n\n    color: Any = None\n    size: int = 3\n'
                      "    parts: dict = field(default_factory=dict)\n    name: str\n    weight: Optional[float] = None\n"
                      '    count: Optional[int] = None\n    label: Optional[str] = None\n    _struct = "accel_thing_options_t"\n', text)
        self.assertIn('"size": ("SIZE", "integer", "3"),\n        "weight": ("ACCEL_WEIGHT", "number", "1"),\n'
                      '        "label": ("ACCEL_LABEL", "text", None),\n    }\n', text)
        self.assertIn('class Color(BaseEnum):\n    RED = "red"\n    BLUE = "blue"\n', text)
        self.assertIn('class Kind(NamedEnum):\n    NO = "NO"\n    OTHER = "other"\n', text)

    def test_methods_of_julia(self):
        made = HEADER + """/** Its color. @param thing A thing. @param unit A text. @return ACCEL_COLOR_*. @threads any */
ACCEL_SINCE(0, 1) accel_color_t accel_thing_color(const accel_thing_t *thing, const char *unit);
/** Paints. @param thing A thing. @param color The color. @return ACCEL_OK. @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_thing_set_color(accel_thing_t *thing, accel_color_t color);
"""
        table = {"functions": {"prefix": "accel_", "rows": "Thing = thing_create(sizes; quick = true)\n"}, "exports": ["Thing"],
                 "qualified": ["show"], "topics": {"Things": {"sections": [1], "names": ["by_hand", "show"]}}}
        text = self.made_after(emit_julia_methods, made, julia=table)
        self.assertIn("Thing(sizes; quick = true) =\n    made(Thing, out -> LibAccel.accel_thing_create("
                      "something(sizes, C_NULL), length(sizes), out))", text)
        self.assertIn("color(thing::Thing, unit) =\n    name_of(CHOICES.color, LibAccel.accel_thing_color(thing, string(unit)))", text)
        self.assertIn("color!(thing::Thing, color) =\n    (LibAccel.accel_thing_set_color(thing, number_of(CHOICES.color, color)); thing)", text)
        self.assertIn("choices(::Type{LibAccel.accel_thing_options_t}) = (color = CHOICES.color,)", text)
        self.assertNotIn("accel_thing_look", text)
        self.assertIn("\nexport Thing\n", text)
        self.assertIn("module Things\nusing ..Accel: Thing, by_hand, color, color!, show\nexport Thing, by_hand, color, color!\nend\n", text)
        with self.assertRaisesRegex(SystemExit, r"languages\.yaml: no topic has the section 1 of the header"):
            self.made_after(emit_julia_methods, made, julia={**table, "topics": {"Other": {"sections": [2], "names": []}}})

    def test_constants_are_plain_numbers(self):
        found = {constant["name"]: (constant["type"], constant["value"]) for constant in self.describe(HEADER)["constants"]}
        self.assertEqual(found["ACCEL_UNSET"], ("int32_t", -2**31))
        self.assertEqual(found["ACCEL_UNSET_DOUBLE"], ("double", -sys.float_info.max))
        for number in ("((accel_status_t)-5)", "(INT32_MIN)"):
            with self.assertRaisesRegex(parse.HeaderError, r"accel\.h:\d+: ACCEL_ERROR_NOT_FOUND has a cast"):
                self.describe(HEADER.replace("ACCEL_ERROR_NOT_FOUND (-5)", f"ACCEL_ERROR_NOT_FOUND {number}"))

    def test_constants_may_be_texts(self):
        made = self.describe(HEADER + '#define ACCEL_FILE_NAME "model.bin" /* Of a model. */\n')
        self.assertEqual(made["constants"][-1], {"name": "ACCEL_FILE_NAME", "value": "model.bin", "type": "text", "section": made["constants"][-1]["section"],
                                                 "line": made["constants"][-1]["line"], "doc": "Of a model."})
        self.assertEqual(emit_julia.literal(made["constants"][-1]), '"model.bin"')
        self.assertIn('pub const ACCEL_FILE_NAME: &str = "model.bin";', "".join(emit_rust.constants(made)))
        self.assertIn('%constant char *ACCEL_FILE_NAME = "model.bin";', "".join(emit_swig.constants(made)))

    def test_structs_by_value_are_refused(self):
        place = "/* A place. */\ntypedef struct accel_device {\n  int32_t x;\n} accel_device_t;\n"
        comment = "/** Moves. @param thing A thing. @param place Where to. @return ACCEL_OK. @threads object, waits */\n"
        moved = "ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_thing_move(accel_thing_t *thing, {} place);\n"
        self.assertEqual(list(lint.lint(self.describe(HEADER + place + comment + moved.format("const accel_device_t *")))), [])
        (breach,) = lint.lint(self.describe(HEADER + place + comment + moved.format("accel_device_t")))
        self.assertIn("accel_thing_move passes accel_device_t by value", breach)
        returned = "/** Where it is. @param thing A thing. @return Its place. @threads any */\nACCEL_SINCE(0, 1) accel_device_t accel_thing_place(const accel_thing_t *thing);\n"
        self.assertTrue(any("accel_thing_place passes accel_device_t by value" in line for line in lint.lint(self.describe(HEADER + place + returned))))

    def test_a_struct_that_could_not_grow(self):
        place = "/* A place. */\ntypedef struct accel_place {\n  int32_t x;\n} accel_place_t;\n"
        self.assertTrue(any("accel_place_t does not begin with size_t struct_size" in line
                            for line in lint.lint(self.describe(HEADER + place))))

    def test_layouts(self):
        (options,) = self.describe(HEADER)["structs"]
        self.assertEqual([(field["name"], field["offset"], field["size"]) for field in options["fields"]],
                         [("struct_size", 0, 8), ("weight", 8, 8), ("color", 16, 4), ("heavy", 20, 4), ("count", 24, 4),
                          ("reserved", 28, 4)])

    def test_what_the_comments_of_options_say(self):
        (options,) = self.describe(HEADER)["structs"]
        weight, color, heavy, count = (field["option"] for field in options["fields"][1:5])
        self.assertEqual((weight["kind"], weight["variable"], weight["default"]), ("number", "ACCEL_WEIGHT", "1"))
        self.assertEqual(weight["interval"], {"low": "0", "high": "inf", "open_low": True, "open_high": True})
        self.assertEqual((color["kind"], color["default"]), ("choice", "ACCEL_COLOR_RED"))
        self.assertEqual(color["constants"], ["ACCEL_COLOR_RED", "ACCEL_COLOR_BLUE"])
        self.assertEqual((heavy["kind"], heavy["default"], heavy["default_words"]), ("flag", None, "as it weighs"))
        self.assertTrue(count["required"])
        self.assertEqual((weight["meaning"], heavy["meaning"]), ("In kilograms.", ""))


class Text(unittest.TestCase):
    def test_types(self):
        self.assertEqual(ctype.pointed("const char *const *"), ("char", [True, True]))
        self.assertEqual(ctype.pointed("accel_thing_t **"), ("accel_thing_t", [False, False]))
        self.assertEqual(ctype.pointed("struct DLManagedTensor *"), ("DLManagedTensor", [False]))
        self.assertEqual(ctype.pointed("size_t"), ("size_t", []))

    def test_comment(self):
        found = documentation.read("/** Does it. Slowly.\n * @param a,b Numbers. @return ACCEL_OK. @threads thread */")
        self.assertEqual(found["parameters"], {"a": "Numbers.", "b": "Numbers."})
        self.assertEqual((found["summary"], found["description"], found["threads"]), ("Does it.", "Slowly.", "thread"))


if __name__ == "__main__":
    unittest.main()
