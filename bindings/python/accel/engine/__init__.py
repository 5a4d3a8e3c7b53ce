"""How Python and the engine meet: values, objects, errors, torch's tensors, the libraries."""
