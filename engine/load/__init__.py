"""Turns settings, checkpoint and machine into a loaded engine: sizes, threads, backend."""
