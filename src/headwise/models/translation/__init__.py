"""Translation models: the class, ensembles, and texts made with them."""
