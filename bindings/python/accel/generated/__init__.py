"""What follows from the header: docs/bindings.md."""
