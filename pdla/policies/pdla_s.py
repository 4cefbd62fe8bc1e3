"""S-PDLA: replicas of the critical patterns on the SSDs, or on disks and SSDs together (PDLA 4.3 and 4.4).

The paper compares with T_H, the best that the disks can do for the pattern. This implementation
compares with the original, which serves a pattern that has no replica.
"""

from pdla.policies.base import Replicate

S_PDLA = Replicate(kinds=("ssd",), hybrid=True)
