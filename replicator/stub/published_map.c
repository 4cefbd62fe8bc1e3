#include "published_map.h"

#include <pthread.h>

#include "home.h"

static struct home_place place;

static void find(void)
{
    home_find(&place, "PDLA_MAP", "replicas.map");
}

const char *published_map_path(const char **why)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find);
    return home_usable(&place, why);
}

const struct loaded_map *published_map(const char **why)
{
    const char *path = published_map_path(why);
    return path == NULL ? NULL : map_current(path, why);
}
