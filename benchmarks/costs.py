"""What pdla costs, in one run: the benchmarks of its parts, with settings that take a minute each (docs/benchmarks.md).

python -m benchmarks.costs [PART ...]
"""

from __future__ import annotations

import subprocess
import sys

PARTS: dict[str, tuple[str, ...]] = {
    "recorder": ("--rounds", "9", "--records", "500000"),
    "posix": ("--rounds", "3"),
    "analyzer": ("--streamed", "1000000"),
    "planner": ("10000",),
    "builder": ("--rounds", "3", "--only", "64 KiB"),
    "stub": ("--rounds", "3"),
    "leased": ("--rounds", "5"),
    "library": ("--rounds", "15"),
    "overhead": ("--rounds", "5"),
    "maintenance": ("10000", "--size", "1"),
}


def main() -> None:
    """Run them all, even if some fail; exit code 1 if one failed."""
    failed = []
    for part in sys.argv[1:] or PARTS:
        sys.stdout.write(f"\n{part}\n")
        sys.stdout.flush()
        if subprocess.run([sys.executable, "-m", f"benchmarks.{part}", *PARTS[part]], check=False).returncode:
            failed.append(part)
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


if __name__ == "__main__":
    main()
