"""One answer from its submission to its body: choices, log-probabilities, shapes. No sockets."""
