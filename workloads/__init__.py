"""What to send, and when: lengths, arrivals, prompts and traces. Pure."""
