"""Input files to pages."""
