"""Telling people that somebody waits."""
