"""The nouns that every layer shares; it imports nothing of ours."""
