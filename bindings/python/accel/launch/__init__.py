# SPDX-License-Identifier: Apache-2.0
"""Starting the ranks of a job from Python."""
