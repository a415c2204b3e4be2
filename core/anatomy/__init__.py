"""What any decoder is made of, read from its `config.json` alone: tensors, KV stores, states."""
