"""Learn from the runs of applications, and serve their next runs, with nothing typed but pdla run --learn.

A run leaves what it recorded in a spool (``spool``). In the background a learner (``learner``) takes it in: it
finds out which application it was (``names``), what changed (``drifts``), plans (``study``) and builds.
"""
