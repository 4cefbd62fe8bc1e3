"""What pdla gains and costs, measured: each module is a program, `python -m benchmarks.bench` the first of them."""
