# SPDX-License-Identifier: Apache-2.0
"""Programs of which a page shows a part: what is in them is looked up as far as a part can be.

C is compiled, by itself or with the variables that pages use around it; Python is parsed, and what it imports from the package is
there. Rust and Julia of guides are run (guides.py), other languages need a test that names the page and takes the blocks of the language from it.
"""

import ast
import re
import subprocess

import guides

# What fragments of C use without declaring it.
DECLARED = """#include <accel.h>
#include <stdio.h>
#include <stdlib.h>
#define CHECK(call) ((call) < 0 ? (fprintf(stderr, "%s\\n", accel_last_error()), exit(1)) : (void)0)
accel_state_t *state; accel_module_t *model, *prepared; accel_tensor_t *loss, *features, *labels; accel_optimizer_t *optimizer;
accel_dataset_t *dataset; accel_dataloader_t *loader; int64_t sink; accel_logger_t *logger; accel_progress_bar_t *bar;
accel_value_t tokens, logits, config, tensors, gradients; accel_status_t status; int64_t step, steps; void *job;
const char *names[2]; double values[2]; void train_step(void); accel_status_t run_model(void *); void check(accel_status_t);
"""


def problem(block, root):
    if guides.is_a_part(block) and block.language != "python":
        return ""
    if block.language == "c":
        return c_problem(block.text, root)
    if block.language == "python":
        return python_problem(block.text, root)
    if is_taken_by_a_test(block, root):
        return ""
    return f"{block}: a program in {block.language} without a name and without the test that runs it"


def is_taken_by_a_test(block, root):
    page = block.page.split("/")[-1]
    texts = (path.read_text() for folder in ("tests", "bindings/python/tests") for path in (root / folder).rglob("*.py") if path.parent.name != "docs")
    return any(page in text and f"```{block.language}" in text for text in texts)


def compile_c(source, root):
    done = subprocess.run(["cc", "-std=gnu11", "-x", "c", "-fsyntax-only", "-Wall", "-Werror", "-Wno-unused", "-Wno-unused-result", f"-I{root}/include", "-"],
                          input=source, capture_output=True, text=True, check=False)
    return done.stderr


def c_problem(text, root):
    if not compile_c(text if "#include" in text else f"#include <accel.h>\n{text}", root):
        return ""
    text = text.replace("for (...)", "for (step = 0; step < steps; step++)")
    functions = "".join(re.findall(r"^static .*?^}\n", text, re.MULTILINE | re.DOTALL))
    statements = re.sub(r"^static .*?^}\n", "", text, flags=re.MULTILINE | re.DOTALL)
    if re.match(r"^[\w ]+ \w+; /\*", text) and text.count("\n") == 1:  # the declaration of a field
        functions, statements = f"struct of_the_page {{ {text} }};\n", ""
    source = f"{DECLARED}{functions}void page(void) {{\n{statements}}}\n"
    return compile_c(source, root)


def python_problem(text, root):
    listed = {name.name for path in ("__init__.pyi",) for statement in ast.parse((root / "bindings/python/accel" / path).read_text()).body
              if isinstance(statement, ast.ImportFrom) for name in statement.names}
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.ImportFrom) and statement.module == "accel":
            for name in statement.names:
                if name.name not in listed:
                    return f"the package has no {name.name}"
    return ""
