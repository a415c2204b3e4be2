"""One request's bill: its entry, its cost object, the price of time. No series."""
