"""What paths are: who serves them, in which dialect, and how each dialect is read and written."""
