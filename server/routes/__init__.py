"""What each path does: one table of routes, and who handles them."""
