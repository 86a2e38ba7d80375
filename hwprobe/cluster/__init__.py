"""Many nodes, one policy: records, plans, agreement, job templates."""
