"""What happened, kept: the event history, its audit chain, and the present read from both."""
