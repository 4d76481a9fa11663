"""What the boss knows, on the disk."""
