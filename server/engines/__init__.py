"""The engine's process and its socket: start, submit, deliver, supervise, bound the queue."""
