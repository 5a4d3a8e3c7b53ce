# SPDX-License-Identifier: Apache-2.0
"""How Python and the engine meet: values, objects, torch's tensors, the libraries."""
