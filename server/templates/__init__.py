"""Chat templates, run in processes with limits on time, memory and output. They make text only."""
