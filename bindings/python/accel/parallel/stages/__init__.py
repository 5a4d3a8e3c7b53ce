# SPDX-License-Identifier: Apache-2.0
"""Models of torch and of the engine in stages: how they are cut, what a stage computes, and generation over stages."""
