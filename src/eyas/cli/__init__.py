"""The command line: verbs take a recipe, nouns look at what is there. Rooms load when needed."""

from .main import main

__all__ = ["main"]
