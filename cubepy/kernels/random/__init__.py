"""Random numbers from counters: the same stream on every device.

Element i of a draw comes from block (offset + i) // n of Philox4x32-10, of which n elements are
made: 4 of at most 32 bits, 2 of 64. `seed` is the key.
"""

from cubepy.kernels.random.entry import bernoulli, bits, normal, uniform
from cubepy.kernels.random.state import seed

__all__ = ["bernoulli", "bits", "normal", "seed", "uniform"]
