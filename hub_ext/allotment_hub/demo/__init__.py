"""The demonstration: a real hub on loopback whose GPUs are declared, and its main story.

``files/`` holds the hub's configuration, policy and inventory as anybody would write them;
everything that the demonstration makes lies in one folder, and everything that it starts carries
one mark in its environment, by which it is found and ended again.
"""
