"""Prometheus series: their catalogue, labels, registry, and the meters that feed them."""
