"""Studies, recipes, properties, evaluations and their values: where migrations begin."""

revision = "2"
down_revision = None
