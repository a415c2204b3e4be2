"""Text to tokens and back: tokenizer, chat template, detokenizer, tool calls. No HTTP."""
