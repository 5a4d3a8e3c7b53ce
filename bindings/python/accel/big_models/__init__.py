"""Models that are larger than a device."""
