"""Programs of torch: their models, optimizers, schedulers and loaders in the engine. Imported when the first object of torch is met."""
