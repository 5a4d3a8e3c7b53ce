"""Models of the engine with the names of torch.nn."""
