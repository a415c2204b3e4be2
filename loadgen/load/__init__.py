"""What traffic to send: specifications, draws, traces, the plan of a run. Sends nothing."""
