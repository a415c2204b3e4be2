"""Reports as tables and pages. Computes nothing."""
