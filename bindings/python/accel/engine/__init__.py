"""How Python and the engine meet: values, objects, torch's tensors, the libraries."""
