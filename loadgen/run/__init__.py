"""Sends a plan and stamps what comes back. Judges nothing."""
