"""When a baseline's credits help the estimator as a prior."""
