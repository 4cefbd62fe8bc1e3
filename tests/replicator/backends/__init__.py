"""Storage with components of replicas."""
