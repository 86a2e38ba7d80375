"""The rule catalogue: one file a family, one small pure function a rule, its explanation beside it."""
