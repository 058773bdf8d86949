"""The user side of Allotment: Jupyter Server extension, notebook client and commands."""
