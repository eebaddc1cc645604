"""Why a promise is broken: the smallest loss that breaks it, in files, calls and plain words."""
