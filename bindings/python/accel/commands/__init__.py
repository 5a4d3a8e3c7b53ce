# SPDX-License-Identifier: Apache-2.0
"""Commands of Accelerate that programs call from Python. The others are those of the program `accel`."""
