"""Are the answers of a peer right? What it hands out must be what went in, and priorities must count."""

import numpy as np

RAISED = 1000.0


class Wrong(Exception):
    pass


def _number_of(rows, column):
    """Maps the bytes of each value of a column to the number of its row."""
    return {column[i].tobytes(): i for i in range(len(rows["done"]))}


def _same(name, got, want):
    got = np.asarray(got).reshape(len(want), -1)
    if not np.array_equal(got, want.reshape(len(want), -1)):
        raise Wrong("%s is not what was inserted" % name)


def _check_next(batch, rows, at):
    """Raises Wrong unless next_obs is the stored one in all items, or the next row's obs, undefined at the
    end of an episode."""
    got, end = np.asarray(batch["next_obs"]), len(rows["done"])
    if np.array_equal(got, rows["next_obs"][at]):
        return
    follows = (rows["done"][at] == 0) & (at + 1 < end)
    _same("next_obs", got[follows], rows["obs"][at[follows] + 1])


def rows_of(batch, rows):
    """The numbers of the rows that a batch holds; raises Wrong if an observation was never inserted or
    another column is of another row."""
    by_frame = "frame" in batch
    keys = np.asarray(batch["frame"] if by_frame else batch["obs"])
    numbers = _number_of(rows, np.ascontiguousarray(rows["obs"][..., 3]) if by_frame
                         else rows["obs"])
    at = [numbers.get(np.ascontiguousarray(key).tobytes()) for key in keys]
    if None in at:
        raise Wrong("an observation was never inserted")
    at = np.array(at)
    for name in ("action", "reward", "done"):
        if name in batch:
            _same(name, batch[name], rows[name][at])
    if "next_obs" in batch:
        _check_next(batch, rows, at)
    return at


def check_rows(peer, feeder, batches):
    """Draws samples and checks that the columns of each item belong to one row, and that weights are in
    (0, 1]. Returns the last sample and the numbers of its rows."""
    for _ in range(batches):
        drawn = peer.sample()
        batch = peer.view(drawn)
        at = rows_of(batch, feeder.rows)
        weight = np.asarray(batch["weight"])
        if weight.shape != at.shape or not np.all(weight > 0) or not np.all(weight < 1.0001):
            raise Wrong("weights are not in (0, 1]")
    return drawn, at


def check_priorities(peer, feeder, batches):
    """Raises the priorities of one sample's rows and draws some more; Wrong if they are less than half of
    the last one. Batches before it may have been prefetched before the update."""
    drawn, at = check_rows(peer, feeder, 1)
    raised = set(at.tolist())
    peer.update(drawn, np.full(len(at), RAISED, np.float32))
    _, last = check_rows(peer, feeder, batches)
    share = float(np.mean([number in raised for number in last.tolist()]))
    if share < 0.5:
        raise Wrong("%.2f of the draws are of the rows with raised priorities" % share)
