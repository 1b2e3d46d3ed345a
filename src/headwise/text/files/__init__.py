"""Reading corpora, labelled texts and recordings, and checking them."""
