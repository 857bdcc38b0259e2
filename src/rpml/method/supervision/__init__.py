"""What a user knows of the rows: groups, labels, constraints."""
