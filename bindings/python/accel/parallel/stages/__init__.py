"""Models of torch and of the engine in stages: how they are cut, what a stage computes, and generation over stages."""
