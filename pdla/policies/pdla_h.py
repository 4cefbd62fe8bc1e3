"""H-PDLA: replicas on the disks, each in the layout that suits its pattern (PDLA 3.4)."""

from pdla.policies.base import Replicate

H_PDLA = Replicate(kinds=("hdd",))
