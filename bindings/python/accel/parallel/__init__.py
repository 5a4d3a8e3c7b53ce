# SPDX-License-Identifier: Apache-2.0
"""What several ranks do together: collectives, sharding, DeepSpeed's settings."""
