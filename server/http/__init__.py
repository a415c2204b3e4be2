"""HTTP in and out: routes, keys, bodies, errors, server-sent events. No tokens are made here."""
