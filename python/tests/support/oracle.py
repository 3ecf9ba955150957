"""An oracle: all rows of one environment in lists, and the item expected of each."""

import dataclasses

import numpy as np


@dataclasses.dataclass
class Row:
    obs: np.ndarray
    reward: float
    terminated: bool
    truncated: bool
    final: bool
    first: bool


@dataclasses.dataclass
class Item:
    obs: np.ndarray       # (stack, *shape)
    next_obs: np.ndarray  # the same, or None: nothing is said
    reward: float
    discount: float
    steps: int


class Oracle:
    """Rows as the actor appended them; an item is known by the number of its row."""

    def __init__(self, stack, n_step, gamma, period=1):
        self.stack, self.n_step, self.gamma, self.period = stack, n_step, gamma, period
        self.rows = []
        self._ended = True

    def add(self, obs, reward, terminated=False, truncated=False, final=False):
        first = self._ended and not final
        self._ended = bool(terminated or truncated or final)
        self.rows.append(Row(np.array(obs), float(reward), bool(terminated), bool(truncated),
                             bool(final), first))

    def end(self):
        """Records that the actor ended the episode without a terminated or truncated step."""
        self._ended = True

    def add_trace(self, trace, upto):
        for i in range(upto):
            self.add(trace.columns["obs"][i], trace.columns["reward"][i], trace.terminated[i],
                     trace.truncated[i], trace.final[i])

    def _next(self, i):
        return self.rows[i + 1] if i + 1 < len(self.rows) else None

    def _steps(self, anchor):
        """(steps of the return, True if its last step is terminated)."""
        for k in range(self.n_step):
            row, following = self.rows[anchor + k], self._next(anchor + k)
            if row.terminated:
                return k + 1, True
            if following is not None and following.final:
                return k + 1, False
            if row.truncated or following is None or following.first:
                return k, False
        return self.n_step, False

    def _first(self, at):
        while not self.rows[at].first:
            at -= 1
        return at

    def _stacked(self, at):
        first = self._first(at)
        return np.stack([self.rows[max(first, at - back)].obs
                         for back in reversed(range(self.stack))])

    def _has_return(self, at):
        return not self.rows[at].final and self._steps(at)[0] > 0

    def _is_last(self, at):
        """Position of a row among the steps of its episode that have a return."""
        following = self._next(at)
        if self.rows[at].terminated or following.final or following.first:
            return True
        return not self._has_return(at + 1)

    def is_item(self, anchor):
        if not self._has_return(anchor):
            return False
        begin = anchor - self._first(anchor) + 1 - self.stack
        return begin >= 0 and begin % self.period == 0 or self.period == 1 or self._is_last(anchor)

    def item(self, anchor):
        """None: the row is no item."""
        if not self.is_item(anchor):
            return None
        steps, terminated = self._steps(anchor)
        after = self._next(anchor + steps - 1)
        known = not terminated or (after is not None and after.final)
        reward = sum(self.gamma**i * self.rows[anchor + i].reward for i in range(steps))
        return Item(self._stacked(anchor), self._stacked(anchor + steps) if known else None,
                    reward, 0.0 if terminated else self.gamma**steps, steps)

    def items(self):
        return [i for i in range(len(self.rows)) if self.is_item(i)]

    def check(self, batch, stacked):
        """Checks every item of the batch, found by its `id` column."""
        for i, row in enumerate(batch.id.tolist()):
            self.check_one(batch, i, row, stacked)

    def check_one(self, batch, i, row, stacked):
        """Checks that item i of the batch is the item of that row."""
        want = self.item(row)
        assert want is not None, row
        obs, next_obs = batch.obs[i], batch.next_obs[i]
        if not stacked:
            obs, next_obs = obs[None], next_obs[None]
        np.testing.assert_array_equal(obs, want.obs)
        if want.next_obs is not None:
            np.testing.assert_array_equal(next_obs, want.next_obs)
        assert batch.steps[i] == want.steps
        np.testing.assert_allclose(batch.reward[i], want.reward, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(batch.discount[i], want.discount, rtol=1e-6)
