"""Fields of JSON objects: how each is read, and the schema that tells of it. No route is known."""
