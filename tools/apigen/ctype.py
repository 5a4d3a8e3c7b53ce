# SPDX-License-Identifier: Apache-2.0
"""Takes C types apart: `const char *const *` is a pointer to a const pointer to a const char."""

import re

# Structs of other headers: only pointers to them pass through.
FOREIGN = ("ArrowArray", "ArrowArrayStream", "ArrowSchema", "DLManagedTensor", "DLManagedTensorVersioned")


def levels(spelling):
    """The base type, whether it is const, and for each pointer from the inside out whether that pointer is const."""
    base, *pointers = spelling.split("*")
    const = bool(re.search(r"\bconst\b", base))
    return re.sub(r"\b(const|struct)\b", "", base).strip(), const, ["const" in pointer for pointer in pointers]


def pointed(spelling):
    """The base type and, from the inside out, whether what each pointer leads to is const."""
    base, const, pointers = levels(spelling)
    return base, ([const] + pointers[:-1]) if pointers else []


def typed(kind, name):
    """`kind name` as in C: a star stands beside the name."""
    return f"{kind['c']}{'' if kind['c'].endswith('*') else ' '}{name}"
