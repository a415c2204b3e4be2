"""What people write: quantities, objectives and options, read by one reader each."""
