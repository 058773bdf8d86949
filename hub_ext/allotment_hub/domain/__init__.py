"""The rules: pure functions over immutable records. No IO, no clock, no randomness, no logging.

Every time in here is an integer number of milliseconds on one steady clock that the caller owns,
every amount of GPU an integer number of milli-GPUs, every amount of memory an integer number of
bytes. Given the same state and the same ``now`` every function gives the same answer.
"""
