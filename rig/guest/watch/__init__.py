"""Watching a process: forks, and supervision of its system calls."""
