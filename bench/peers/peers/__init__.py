"""One module for each peer, which calls it as its own users do. A module has

* ``version()``;
* ``Peer(shape, columns, capacity)``, for one process: insert1(row), insert(rows) of 64, sample() ->
  whatever it gives, update(what, td_error), view(what) -> its columns and ``weight`` as arrays
  (``frame`` for the newest of a stack), bytes_per_step(), close();
* perhaps ``cut(shape, rows)``: what its users hold in place of all rows of the workload;
* perhaps ``Tree(capacity, seed)``: calls() -> for each metric a function for before the clock, or
  None, and one that is timed, both given the number of the call and made for BATCH items;
* perhaps ``Host(shape, columns, capacity)`` with prefill(feeder, steps), close() and ``address``, by
  TCP at PEERS_HOST if that is set, and ``join(address, role, shape, columns)`` -> as Peer; or, where only children of the host can
  join, ``Host.client(role)``.
"""


def prefill(client, feeder, steps):
    """For Host.prefill."""
    done = 0
    while done < steps:
        chunk = feeder.chunk()
        client.insert(chunk)
        done += len(chunk["reward"])
