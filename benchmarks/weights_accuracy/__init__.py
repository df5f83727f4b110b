"""How right the verdicts on weights are: trained weights of others against re-initialisations of them."""
