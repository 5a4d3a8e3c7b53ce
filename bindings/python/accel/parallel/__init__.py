# SPDX-License-Identifier: Apache-2.0
"""Work of several ranks: collectives, sharding, DeepSpeed's settings."""
