"""Processes: one by itself, or several behind one port; signals, and the configuration anew."""
