"""A checkpoint's tokenizer as `tokenizer.json`, and whether its ids fit the model. No text here."""
