# SPDX-License-Identifier: Apache-2.0
"""How tensors look in print: all elements of small ones, the edges of large ones."""

MOST_ELEMENTS = 1000
EDGE = 3


def _number(value):
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value)
    return f"{value:.4f}" if value == 0 or 1e-4 <= abs(value) < 1e6 or value != value or abs(value) == float("inf") else f"{value:.4e}"


def _lines(tensor, indent, whole):
    if tensor.ndim == 0:
        return _number(tensor.item())
    length = tensor.shape[0]
    shown = range(length) if whole or length <= 2 * EDGE else [*range(EDGE), None, *range(length - EDGE, length)]
    parts = ["..." if place is None else _lines(tensor[place], indent + 1, whole) for place in shown]
    between = ", " if tensor.ndim == 1 else ",\n" + "\n" * (tensor.ndim - 2) + " " * (indent + 1)
    return "[" + between.join(parts) + "]"


def format_tensor(tensor):
    tags = []
    if tensor.dtype not in ("float32", "int64", "bool"):
        tags.append(f"dtype={tensor.dtype!r}")
    if tensor.device.type == "meta":
        return f"tensor(..., shape={tensor.shape}, dtype={tensor.dtype!r}, device='meta')"
    if tensor.device.type != "cpu":
        tags.append(f"device='{tensor.device}'")
    if tensor.requires_grad:
        tags.append("requires_grad=True")
    numbers = tensor.detach().cpu()
    numbers = numbers.float() if numbers.dtype.is_floating_point else numbers
    elements = _lines(numbers, len("tensor("), numbers.numel() <= MOST_ELEMENTS) if numbers.numel() else "[]"
    if not numbers.numel():
        tags.append(f"shape={tensor.shape}")
    return f"tensor({', '.join([elements, *tags])})"
