"""A log with a manifest that says which file it is, and that is synced with the first checkpoint only.

Whoever cuts the power before that finds no manifest, and the engine begins a new database. Where the setup is durable
before anybody looks, nothing is ever lost.
"""
