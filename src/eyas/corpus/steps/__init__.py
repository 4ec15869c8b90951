"""A page to a document: pure functions, one a file."""
