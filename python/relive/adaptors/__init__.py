"""Adaptors: classes with the replay interfaces of other libraries, which keep their data in a Relive
store.

``import relive`` imports none of them. Each needs the library that it is named after, except
``reverb``, which needs only Relive:

* :mod:`relive.adaptors.reverb`: a client with the names and meanings of dm-reverb's client;
* ``relive.adaptors.torchrl``: storage, sampler and writer for a TorchRL replay buffer;
* ``relive.adaptors.sb3``: a ``replay_buffer_class`` for Stable-Baselines3;
* ``relive.adaptors.rllib``: a ``replay_buffer_config["type"]`` for RLlib.

``docs/adaptors.md`` lists what each covers and how it differs from the library's own class. What an
adaptor does not cover raises NotImplementedError, with what to use instead.
"""
