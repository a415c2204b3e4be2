"""What a request may say: fields, kinds, limits, messages, tools, grammars. Nothing runs here."""
