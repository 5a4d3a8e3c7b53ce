# SPDX-License-Identifier: Apache-2.0
"""The exports and submodules of the package of Julia: bindings/julia/src/generated/topics.jl, after api/languages.yaml."""

import textwrap

import languages
from emit_julia import NOTE

FILE = "bindings/julia/src/generated/topics.jl"


def filled(word, names):
    return textwrap.fill(", ".join(names), 130, initial_indent=word + " ", subsequent_indent="    ", break_on_hyphens=False)


def emit(root, titles, generated):
    """`titles` has the title of each section of the header, `generated` the sections and names of generated methods."""
    table = languages.read(root, "julia")
    topics, qualified = table["topics"], set(table["qualified"])
    listed = {number for topic in topics.values() for number in topic["sections"]}
    left_out = {section for section, _ in generated} - listed
    if left_out:
        raise SystemExit(f"{languages.TABLE}: no topic has the section {min(left_out)} of the header, {titles[min(left_out)]}")
    parts = [NOTE, filled("export", table["exports"]) + "\n"]
    for topic, has in topics.items():
        sections = has["sections"]
        names = sorted({*has["names"], *(name for section, name in generated if section in sections)})
        about = "; ".join(titles[section].split(":")[0] for section in sections)
        parts.append(f'"""\n    using Accel.{topic}\n\n{about}.\n"""\nmodule {topic}\n{filled("using ..Accel:", names)}\n'
                     f'{filled("export", [name for name in names if name not in qualified])}\nend\n')
    return {FILE: "\n".join(parts)}
