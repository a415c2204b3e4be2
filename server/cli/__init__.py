"""The command line: reads settings, starts the server, lists models. It decides nothing else."""
