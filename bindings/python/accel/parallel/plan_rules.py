# SPDX-License-Identifier: Apache-2.0
"""The rules of a plan as text: a pattern of paths and a style, of which the first counts that matches."""


def read(text):
    """[[pattern, style], ...]"""
    rules = [rule.split() for rule in text.replace(";", "\n").splitlines() if rule.strip()]
    wrong = [" ".join(rule) for rule in rules if len(rule) != 2]
    if wrong or not rules:
        raise ValueError(f"plan: {wrong[0] if wrong else text!r}: expected rules of a path and a style, such as 'layers.*.up colwise'")
    return rules


def first_match(rules, path):
    """The number of the rule that counts for a path."""
    return next((number for number, (pattern, _) in enumerate(rules) if _matches(pattern, path)), None)


def _matches(pattern, path):
    parts, given = pattern.split("."), path.split(".")
    return len(parts) == len(given) and all(part in ("*", own) for part, own in zip(parts, given))
