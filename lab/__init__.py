"""Predict, measure, explain the gap: `floorline plan` and `floorline lab`. It imports no engine."""
