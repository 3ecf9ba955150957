"""Results of ``store.info()``, ``table.info()`` and ``table.verify()``."""

from __future__ import annotations

import dataclasses

from .signature import Column
from .views import View


class _Info:
    """Made from a dict of the extension, by name."""

    @classmethod
    def _of_core(cls, values):
        return cls(**values)


@dataclasses.dataclass(frozen=True)
class NodeInfo(_Info):
    """One memory node.

    * ``pool_bytes``, ``used_bytes``: size of its pool, and how much of it regions occupy.
    * ``incarnation``: a number that changes with each start of the node.
    * ``regions``: in its pool; ``broken``: of those, regions whose file lost a part. Their shards are
      down.
    * ``pages``: what backs the pool: ``"thp"``, ``"hugetlb"``, ``"small"``, ``"file"`` or ``"dax"``.
    """

    name: str
    address: str
    pool_bytes: int
    used_bytes: int
    incarnation: int
    regions: int
    broken: int
    up: bool
    pages: str


@dataclasses.dataclass(frozen=True)
class StoreInfo(_Info):
    """State of a store.

    * ``term``: of the metadata server; grows with each of its starts.
    * ``tables``, ``clients``: how many there are.
    * ``rebuilds``: of shards, since the server started; ``waiting``: what a waiting rebuild waits
      for, in words, or an empty string.
    """

    uri: str
    server_version: str
    term: int
    tables: int
    clients: int
    rebuilds: int
    waiting: str
    nodes: list[NodeInfo]

    @classmethod
    def _of_core(cls, values):
        nodes = [NodeInfo._of_core(node) for node in values["nodes"]]
        return cls(**dict(values, nodes=nodes))


@dataclasses.dataclass(frozen=True)
class ViewInfo(_Info):
    """State of one view.

    * ``items``: live now; ``inserted``, ``sampled``: since the table was created.
    * ``priority_sum``, ``max_priority``: as stored, that is after the exponent alpha.
    * ``overhead_bytes``: memory of its leaves, inner levels and counts.
    """

    view: View
    items: int
    inserted: int
    sampled: int
    priority_sum: float
    max_priority: float
    overhead_bytes: int

    @classmethod
    def _of_core(cls, values):
        return cls(**dict(values, view=View._of_core(values["view"])))


@dataclasses.dataclass(frozen=True)
class TableInfo(_Info):
    """Sizes of a table. A row is one step, or one final observation.

    * ``capacity``: steps that stay drawable; ``slots``: rows of all shards, slack included.
    * ``block``: rows that an environment claims at once; ``window``: most rows of an item.
    * ``row_bytes``: of a row with its header of ``row_header_bytes``.
    * ``rows_bytes``: memory of all rows; ``tree_bytes``: all other memory: priorities and client slots.
    """

    name: str
    columns: list[Column]
    views: list[ViewInfo]
    shards: int
    capacity: int
    slots: int
    block: int
    window: int
    row_bytes: int
    row_header_bytes: int
    max_writers: int
    max_clients: int
    rows_bytes: int
    tree_bytes: int

    @classmethod
    def _of_core(cls, values):
        return cls(**dict(values, columns=[Column._of_core(c) for c in values["columns"]],
                          views=[ViewInfo._of_core(v) for v in values["views"]]))


@dataclasses.dataclass(frozen=True)
class VerifyReport(_Info):
    """``problems`` counts violated invariants, 0 = none; ``first_problem`` describes one of them."""

    problems: int
    items: int
    wrong_sums: int
    wrong_leaves: int
    wrong_blocks: int
    wrong_rows: int
    wrong_words: int
    open_blocks: int
    first_problem: str
