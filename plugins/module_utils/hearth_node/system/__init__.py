"""The machine itself: clock, memory, login user."""
