"""S-PDLA: replicas of the critical patterns on the SSDs, the others left alone (PDLA 4.3 and 4.4).

The paper compares with T_H, the best that the disks can do for the pattern; here with the original as it is, which is
what serves a pattern that is left alone. Replicas over disks and SSDs together (T_HS) are not made.
"""

from pdla.policies.base import Greedy

S_PDLA = Greedy(kinds=("ssd",))
