"""The acceptance kit."""
