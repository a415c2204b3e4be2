"""Reading what others published: files in, `ModelConfig`, tensors and tokenizer out."""
