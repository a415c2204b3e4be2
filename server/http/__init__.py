"""HTTP in and out: keys, bodies, errors, server-sent events. It knows no route."""
