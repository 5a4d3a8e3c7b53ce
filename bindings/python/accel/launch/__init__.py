"""Starting the ranks of a job from Python."""
