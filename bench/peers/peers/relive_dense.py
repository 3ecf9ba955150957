"""Relive with a frame stored once, whose stacks come out in arrays of their own."""

from peers import relive as lean
from peers.relive import cut, version  # noqa: F401


class Peer(lean.Peer):
    def __init__(self, shape, columns, capacity):
        super().__init__(shape, columns, capacity, layout="dense")
