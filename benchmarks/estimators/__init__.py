"""How many evaluations do credits cost? Estimators compared on games whose Shapley values are known."""
