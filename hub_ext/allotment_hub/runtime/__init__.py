"""What runs the work that was granted: the hub's servers, or stand-ins for them."""
