# SPDX-License-Identifier: Apache-2.0
"""Says whether a source defines a test, in each language of the tests."""

import re


def is_defined(name, text, suffix):
    """Whether the text of a file defines a function, a GoogleTest or a test set of that name."""
    if suffix == ".py":
        pattern = rf"^ *def {name}\("
    elif suffix == ".jl":
        pattern = rf'^@testset "{re.escape(name)}" '
    elif "." in name:
        pattern = rf"^TEST(?:_F|_P)?\({name.replace('.', ', ')}\)"
    else:
        pattern = rf"^(?:static )?[a-z]\w*[ *]+{name}\([^;]*\{{$"
    return re.search(pattern, text, re.MULTILINE) is not None
