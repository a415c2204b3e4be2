"""Books of a burst of steps: who took part, who pays. Knows no HTTP."""
