# SPDX-License-Identifier: Apache-2.0
"""What follows from the header: docs/bindings.md."""
