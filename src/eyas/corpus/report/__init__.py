"""What became of the pages, in numbers and as a page."""
