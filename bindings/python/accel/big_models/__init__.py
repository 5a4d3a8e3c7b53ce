# SPDX-License-Identifier: Apache-2.0
"""Models that are larger than a device."""
