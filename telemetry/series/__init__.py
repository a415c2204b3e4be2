"""Prometheus series: their catalogue, labels, registry, and the books that count them."""
