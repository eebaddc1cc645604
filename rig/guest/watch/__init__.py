"""Watch a process: forks, and supervision of their system calls."""
