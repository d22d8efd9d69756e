"""The code that runs when compiled code is loaded or called."""
