"""Crash states: what they are, their ids, their contents, and damage."""
