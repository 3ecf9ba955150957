"""What ``store.info()`` and ``table.info()`` return."""

from __future__ import annotations

import dataclasses

from .signature import Column
from .views import View


class _Info:
    """Filled from the extension's dicts by name."""

    @classmethod
    def _of_core(cls, values):
        return cls(**values)


@dataclasses.dataclass(frozen=True)
class NodeInfo(_Info):
    """One memory node: ``pages`` says what backs its pool (thp, hugetlb, small, file, dax), ``broken``
    how many of its regions have lost part of their file: their shards are down."""

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
    """``waiting``: what rebuilds wait for, in words; empty if none waits."""

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
    """``items`` live now; ``inserted`` and ``sampled`` ever; priorities as stored (with alpha)."""

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
    """Sizes are in rows (one step, or one final observation) and bytes."""

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
    """``problems`` is 0 where every invariant holds; ``first_problem`` says one in words."""

    problems: int
    items: int
    wrong_sums: int
    wrong_leaves: int
    wrong_blocks: int
    wrong_rows: int
    wrong_words: int
    open_blocks: int
    first_problem: str
