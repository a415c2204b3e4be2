"""One forward pass over a flat batch: native kernels, or plain torch. Knows no request."""
