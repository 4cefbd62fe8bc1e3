"""The verbs, and all steps on real programs."""
