"""What this machine has and can do: memory, compiled kernels, peaks and how they are measured."""
