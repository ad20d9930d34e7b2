"""How near to a GPU's limit one coalition's evaluation is, and what fleets of small models gain."""
