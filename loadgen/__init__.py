"""Open-loop traffic against any OpenAI-compatible server, and reports that can be checked."""
