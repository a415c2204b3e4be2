"""Writes a checkpoint into the cache, in the formats that a backend reads. Runs no step."""
