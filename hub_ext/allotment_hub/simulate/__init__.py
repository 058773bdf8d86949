"""Virtual time: scenarios played against the real decisions, and what must hold after each step."""
