# SPDX-License-Identifier: Apache-2.0
"""Models of the engine with the names of torch.nn."""
