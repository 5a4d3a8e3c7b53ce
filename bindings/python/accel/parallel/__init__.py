"""What several ranks do together: collectives, sharding, DeepSpeed's settings."""
