"""Megatron-LM's settings and names: the engine splits, shards and trains by them."""
