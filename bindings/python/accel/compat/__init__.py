# SPDX-License-Identifier: Apache-2.0
"""The names of Accelerate: where they are, what is missing, and small functions that scripts import."""
