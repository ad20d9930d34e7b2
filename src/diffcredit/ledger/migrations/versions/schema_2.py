"""Studies, recipes, properties, evaluations and their values: the oldest schema that can be migrated."""

revision = "2"
down_revision = None
