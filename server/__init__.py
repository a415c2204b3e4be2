"""The wire: HTTP, streams of text, the command line. No tensors live here, and no scheduling."""
