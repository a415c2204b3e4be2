"""Predictions for machines and loads that do not run yet: devices, scenarios, levers, capacity."""
