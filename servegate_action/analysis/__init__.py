"""Thought: from a recording to a judgement. No clock, no files, no network, no randomness of its own."""
