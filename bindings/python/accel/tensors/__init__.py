"""Tensors of the engine: the class, operators, element types, devices, trees."""
