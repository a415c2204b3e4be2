"""What is known of one engine: its model, its clock, when to measure it again."""
