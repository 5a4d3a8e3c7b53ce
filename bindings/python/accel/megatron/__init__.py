# SPDX-License-Identifier: Apache-2.0
"""Megatron-LM's settings and names: the engine splits, shards and trains by them."""
