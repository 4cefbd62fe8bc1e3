"""H-PDLA: replicas on the disks, each in the layout that suits its pattern (PDLA 3.4)."""

from pdla.policies.base import Greedy

H_PDLA = Greedy(kinds=("hdd",))
