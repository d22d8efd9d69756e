"""What a pass is, how passes are found by name, and what runs them."""
