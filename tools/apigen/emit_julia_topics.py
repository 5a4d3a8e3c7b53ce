"""The exports and submodules of the package of Julia: bindings/julia/src/generated/topics.jl, after bindings/julia/topics.txt."""

import textwrap

from emit_julia import NOTE

TABLE = "bindings/julia/topics.txt"
FILE = "bindings/julia/src/generated/topics.jl"


def read(path):
    """The rows of the table: a name, and the words behind it."""
    rows = []
    for line in path.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith(" "):
            rows[-1][1].extend(line.split())
        else:
            name, words = line.split("=")
            rows.append((name.strip(), words.split()))
    return rows


def filled(word, names):
    return textwrap.fill(", ".join(names), 130, initial_indent=word + " ", subsequent_indent="    ", break_on_hyphens=False)


def emit(root, titles, generated):
    """`titles` has the title of each section of the header, `generated` the sections and names of generated methods."""
    rows = dict(read(root / TABLE))
    exports, qualified = rows.pop("exports"), set(rows.pop("qualified"))
    listed = {int(number) for words in rows.values() for number in words[:words.index("|")]}
    left_out = {section for section, _ in generated} - listed
    if left_out:
        raise SystemExit(f"{TABLE}: no topic has the section {min(left_out)} of the header, {titles[min(left_out)]}")
    parts = [NOTE, filled("export", exports) + "\n"]
    for topic, words in rows.items():
        sections = [int(number) for number in words[:words.index("|")]]
        by_hand = words[words.index("|") + 1:]
        names = sorted({*by_hand, *(name for section, name in generated if section in sections)})
        about = "; ".join(titles[section].split(":")[0] for section in sections)
        parts.append(f'"""\n    using Accel.{topic}\n\n{about}.\n"""\nmodule {topic}\n{filled("using ..Accel:", names)}\n'
                     f'{filled("export", [name for name in names if name not in qualified])}\nend\n')
    return {FILE: "\n".join(parts)}
