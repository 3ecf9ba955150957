"""Relive with next_obs stored in each row, as the other peers have it."""

from peers import relive
from peers.relive import version  # noqa: F401


class Peer(relive.Peer):
    def __init__(self, shape, columns, capacity):
        super().__init__(shape, columns, capacity, stored=True)
