"""One program twice: with Reverb's calls (relive.adaptors.reverb), then with Relive's own."""

import numpy as np

import relive
from relive.adaptors import reverb          # instead of: import reverb

N_STEP, GAMMA, STEPS = 3, 0.99, 300
rng = np.random.default_rng(1)
steps = [dict(obs=np.float32(t), action=np.int64(t % 4), reward=np.float32(rng.random()))
         for t in range(STEPS)]


def with_reverb():
    # No Server: the tables are made in the store ("shm:NAME", "relive://HOST:PORT") by the client.
    client = reverb.Client("embed:", tables=[reverb.Table(
        "replay", sampler=reverb.selectors.Prioritized(0.6), remover=reverb.selectors.Fifo(),
        max_size=10_000, rate_limiter=reverb.rate_limiters.MinSize(100))])
    with client.trajectory_writer(num_keep_alive_refs=N_STEP + 1) as writer:
        for t, step in enumerate(steps):
            writer.append(step)
            if t >= N_STEP:                 # the actor cuts items, each with its own copy of the steps
                writer.create_item("replay", priority=1.0, trajectory={
                    "obs": writer.history["obs"][-N_STEP - 1],
                    "action": writer.history["action"][-N_STEP - 1],
                    "rewards": writer.history["reward"][-N_STEP - 1:-1],
                    "next_obs": writer.history["obs"][-1]})
        writer.end_episode()
    samples = list(client.sample("replay", 64, emit_timesteps=False))
    for sample in samples:                  # the learner sums the return
        _, next_obs, obs, rewards = sample.data     # in the order of the sorted names, as Reverb has it
        assert next_obs == obs + N_STEP and len(rewards) == N_STEP
    client.mutate_priorities("replay", {sample.info.key: 0.5 for sample in samples})
    items = client.server_info()["replay"].current_size
    client.close()
    return items


def with_relive():
    store = relive.open("embed:")
    table = store.create_table(
        "replay", {"obs": "float32", "action": "int64", "reward": "float32"}, capacity=10_000,
        views=[relive.View(n_step=N_STEP, alpha=0.6)],
        rate_limiter=relive.RateLimiter.of_min_size(100))
    with table.writer() as writer:          # the actor appends steps; the view says what the items are
        for t, step in enumerate(steps):
            writer.append(step, terminated=t == STEPS - 1)
    batch = table.sample(64, gamma=GAMMA)   # arrays of 64, the return summed, the weights computed
    whole = batch.discount > 0              # the last steps' returns end with the episode
    assert (batch.next_obs[whole] == batch.obs[whole] + N_STEP).all()
    for obs, reward in zip(batch.obs[whole].astype(int), batch.reward[whole]):
        expected = sum(GAMMA**i * steps[obs + i]["reward"] for i in range(N_STEP))
        assert abs(reward - expected) < 1e-4
    table.update_priorities(batch.key, td_error=np.full(64, 0.5))
    items = len(table)
    store.close()
    return items


print("items: %d with Reverb's calls, %d with Relive's" % (with_reverb(), with_relive()))
