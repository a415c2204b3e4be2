"""One step of a plan: run the forward pass, sample its rows, keep grammars. Knows no queue."""
