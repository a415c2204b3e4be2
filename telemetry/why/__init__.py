"""Slow at what? A request's pieces judged, and said in one sentence."""
