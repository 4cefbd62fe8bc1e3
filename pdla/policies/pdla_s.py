"""S-PDLA: replicas of the critical patterns on the SSDs, or on disks and SSDs together (PDLA 4.3 and 4.4).

The paper compares with T_H, the best that the disks can do for the pattern; here with the original as it is, which is
what serves a pattern that is left alone.
"""

from pdla.policies.base import Replicate

S_PDLA = Replicate(kinds=("ssd",), hybrid=True)
