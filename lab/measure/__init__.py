"""A server under experiment, and what was measured of it."""
