"""Package sources to WARC files in the store."""
