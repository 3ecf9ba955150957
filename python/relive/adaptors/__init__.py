"""Adaptors: classes with the interfaces of other libraries for replay and weights, which keep their data in
a Relive store.

``import relive`` imports none of them. Each needs the library that it is named after, except
``reverb``, which needs only Relive:

* :mod:`relive.adaptors.reverb`: a client with the names and meanings of dm-reverb's client;
* ``relive.adaptors.torchrl``: storage, sampler and writer for a TorchRL replay buffer;
* ``relive.adaptors.sb3``: a ``replay_buffer_class`` for Stable-Baselines3;
* ``relive.adaptors.rllib``: a ``replay_buffer_config["type"]`` for RLlib;
* ``relive.adaptors.ding``: a buffer for DI-engine;
* ``relive.adaptors.lerobot``: a replay buffer for LeRobot's actor and learner;
* ``relive.adaptors.verl``: a checkpoint engine for verl;
* ``relive.adaptors.nemo_rl``: a ``WeightSynchronizer`` for NeMo-RL;
* ``relive.adaptors.torchstore``: the functions of TorchStore; needs PyTorch only.

``docs/adaptors.md`` lists what each covers and how it differs from the library's own class. What an
adaptor does not cover raises NotImplementedError, with what to use instead.
"""
