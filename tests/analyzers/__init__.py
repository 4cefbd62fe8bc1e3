"""From traces to signatures."""
