"""Random trajectories of a vector of environments, in every mode, against the oracle."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import relive
from support.oracle import Oracle

SIGNATURE = {"obs": ((2,), "float32"), "reward": "float64", "id": "int64", "where": "uint8"}

# What a step of one environment is: how it ends, and whether the actor says more about the end.
ENDS = st.sampled_from(["", "", "", "", "terminated", "truncated", "truncated final", "both",
                        "terminated final", "end", "end final"])


class Actor:
    """Appends steps of all environments, and keeps oracles of them."""

    def __init__(self, writer, oracles, rng):
        self.writer, self.oracles, self.rng = writer, oracles, rng

    def observe(self):
        return self.rng.standard_normal((len(self.oracles), 2)).astype("f4")

    def step(self, ends):
        obs, final, reward = self.observe(), self.observe(), self.rng.standard_normal(len(ends))
        terminated = np.array(["terminated" in end or end == "both" for end in ends])
        truncated = np.array(["truncated" in end or end == "both" for end in ends])
        finals = [row if "final" in end else None for row, end in zip(final, ends)]
        told = (terminated | truncated) & [row is not None for row in finals]
        if told.any():  # of all that ended or of none
            finals = [row if ended else None
                      for row, ended in zip(final, terminated | truncated)]
        self.writer.append(obs=obs, reward=reward, id=[len(o.rows) for o in self.oracles],
                           where=np.arange(len(ends), dtype="u1"), terminated=terminated,
                           truncated=truncated, final_obs=finals if told.any() else None)
        for env, (oracle, end) in enumerate(zip(self.oracles, ends)):
            oracle.add(obs[env], reward[env], terminated[env], truncated[env])
            if told.any() and finals[env] is not None:
                oracle.add(finals[env], 0, final=True)
            if end.startswith("end"):
                self.end(env, final[env] if "final" in end else None)

    def end(self, env, final):
        if final is None:
            self.writer.end_episode(env=env)
        else:
            self.writer.end_episode(env=env, obs=final)
            self.oracles[env].add(final, 0, final=True)
        self.oracles[env].end()


@settings(max_examples=60, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=st.integers(1, 3).flatmap(
           lambda n: st.lists(st.lists(ENDS, min_size=n, max_size=n), min_size=1, max_size=40)),
       stack=st.integers(1, 4), n_step=st.integers(1, 4), seed=st.integers(0, 2**32 - 1),
       layout=st.sampled_from(["dense", "window"]))
def test_sample__random_trajectories(make_table, steps, stack, n_step, seed, layout):
    n_envs = len(steps[0])
    table = make_table(SIGNATURE, capacity=2000, max_writers=n_envs,
                       views=[relive.View(stack=stack, n_step=n_step)])
    oracles = [Oracle(stack, n_step, 0.9) for _ in range(n_envs)]
    with table.writer(num_envs=n_envs, autoreset="disabled") as writer:
        actor = Actor(writer, oracles, np.random.default_rng(seed))
        for ends in steps:
            actor.step(ends)
    items = sum(len(oracle.items()) for oracle in oracles)
    assert len(table) == items
    if items == 0:
        with pytest.raises(relive.Empty):
            table.sample(1, timeout=0)
    else:
        batch = table.sample(64, gamma=0.9, layout=layout)
        for i, (env, row) in enumerate(zip(batch.where.tolist(), batch.id.tolist())):
            oracles[env].check_one(batch, i, row, stacked=stack > 1)
    table.close()
