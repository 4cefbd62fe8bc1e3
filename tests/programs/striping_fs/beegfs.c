#include "striping_fs.h"
const struct kind beegfs = {.name = "beegfs", .strip = 1 << 19};
