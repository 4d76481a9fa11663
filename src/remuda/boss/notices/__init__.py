"""Notify people that an agent waits."""
