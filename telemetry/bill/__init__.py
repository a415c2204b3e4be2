"""What one request is charged: its entry, its cost object, money. No series."""
