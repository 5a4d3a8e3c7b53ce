# SPDX-License-Identifier: Apache-2.0
"""Tracebacks of the package rich: importing this switches them on, which `import accel` does with ACCELERATE_ENABLE_RICH."""

from .availability import is_rich_available

if not is_rich_available():
    raise ModuleNotFoundError("tracebacks of rich need the package (pip install rich), and ACCELERATE_ENABLE_RICH=1")

from rich.traceback import install

install(show_locals=False)
