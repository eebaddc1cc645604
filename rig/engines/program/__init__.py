"""A user's program, in any language: it prints which of its transactions are durable, and which it finds."""
