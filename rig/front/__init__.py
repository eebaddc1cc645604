"""How people reach the rig: the command line, the pytest plugin, benchmarks, the doctor."""
