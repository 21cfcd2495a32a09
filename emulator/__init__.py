"""A prefill/decode cluster in one process, the default target. Imports nothing of ours."""
