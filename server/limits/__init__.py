"""What one request may cost: counted before the work, and the work done beside the event loop."""
