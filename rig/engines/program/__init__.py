"""A program of the user's, in any language: it prints which of its transactions are durable, and which it finds."""
