"""Documents, tables of figures and statistics: what reports of all kinds are made of."""
