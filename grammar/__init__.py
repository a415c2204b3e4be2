"""Compiles grammars and tries them out: the one home of llguidance. No torch, no HTTP."""
