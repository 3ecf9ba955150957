"""Results of ``store.info()``, ``table.info()``, ``table.save()`` and ``table.verify()``. They are copies: they do not
change when the store does."""

from __future__ import annotations

import dataclasses

from .signature import Column
from .views import View


class _Info:
    """Base of dataclasses that are made of a dict of the extension, whose keys are their fields."""

    @classmethod
    def _of_core(cls, values):
        return cls(**values)


@dataclasses.dataclass(frozen=True)
class NodeInfo(_Info):
    """One memory node.

    * ``name``, ``address``: the node's name, and the address at which clients reach it.
    * ``pool_bytes``: bytes of its pool; ``used_bytes``: bytes of the pool that regions occupy.
    * ``incarnation``: a number that changes with each start of the node.
    * ``regions``: number of regions in its pool; ``broken``: number of regions whose file lost a
      part. The shards in them are down.
    * ``up``: True if the server has contact with the node.
    * ``pages``: what backs the pool: ``"thp"``, ``"hugetlb"``, ``"small"``, ``"file"`` or ``"dax"``.
    * ``transport``: how clients reach it: ``"embed"``, ``"shm"``, ``"verbs"`` or ``"ofi"``; ``why``: the reason.
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
    transport: str
    why: str


@dataclasses.dataclass(frozen=True)
class StoreInfo(_Info):
    """State of a store.

    * ``uri``: as the store was opened; ``server_version``: release of the metadata server.
    * ``term``: a number that grows with each start of the metadata server.
    * ``tables``: number of tables; ``clients``: number of stores that processes have open.
    * ``rebuilds``: number of shards whose sums were rebuilt since the server started.
    * ``waiting``: the reason why a rebuild waits, in words; empty if none does.
    * ``nodes``: a list of :class:`NodeInfo`; an ``embed:`` store has one.
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

    * ``view``: the :class:`relive.View` that the table was created with.
    * ``items``: number of items that can be drawn now; ``inserted``, ``sampled``: numbers of items
      since the table was created.
    * ``priority_sum``: sum of the priorities of live items; ``max_priority``: the largest priority so
      far. Both are as stored, that is after the exponent alpha.
    * ``overhead_bytes``: bytes of the view's sum trees and counts.
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
    """Sizes of a table, and the state of its views. A row is one step, or one final observation.

    * ``columns``: the signature; ``views``: a list of :class:`ViewInfo`, in the order of create_table.
    * ``shards``, ``capacity``, ``max_writers``, ``max_clients``: as the table was created.
    * ``slots``: number of rows that all shards have room for, more than ``capacity``.
    * ``block``: rows that an environment claims at once; ``window``: rows of the largest item.
    * ``row_bytes``: bytes of a row, of which its header takes ``row_header_bytes``.
    * ``rows_bytes``: bytes of all rows; ``tree_bytes``: bytes of priorities, counts and client slots.
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
class SaveInfo(_Info):
    """What :meth:`relive.Table.save` wrote.

    * ``table``: name of the table; ``items``: number of items of each view, a tuple.
    * ``rows``: steps in the file. One that two blocks need counts twice.
    * ``bytes``: of the file; ``reused_bytes``: of these, copied from ``base``.
    """

    table: str
    items: tuple[int, ...]
    rows: int
    bytes: int
    reused_bytes: int


@dataclasses.dataclass(frozen=True)
class VerifyReport(_Info):
    """What :meth:`relive.Table.verify` found.

    * ``problems``: number of violated invariants; 0 = the table is sound.
    * ``first_problem``: one of them in words; empty if there is none.
    * ``items``: number of live items that were checked.
    * ``wrong_sums``, ``wrong_leaves``: inner values and leaves of sum trees that are wrong.
    * ``wrong_blocks``, ``wrong_rows``, ``wrong_words``: block headers, rows and counters that are
      wrong.
    * ``open_blocks``: blocks that writers still fill; these are no problem.
    """

    problems: int
    items: int
    wrong_sums: int
    wrong_leaves: int
    wrong_blocks: int
    wrong_rows: int
    wrong_words: int
    open_blocks: int
    first_problem: str
