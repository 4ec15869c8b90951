"""The stages of the corpus, as the room `work` runs them."""
