"""Maps of engines' classes, harvested by machine: data, and the profiles made of it."""
