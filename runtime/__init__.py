"""What runs when compiled code is loaded or called."""
