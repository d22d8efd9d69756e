"""What normal forms do not decide: integer sets (isl), search, and the store that asks them."""
