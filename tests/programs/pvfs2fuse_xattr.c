/* OrangeFS's pvfs2fuse with extended attributes, as its kernel client has them: docs/orangefs.md
 * says how to build it. */
#define main stock_main
#include "pvfs2fuse.c"
#undef main

static int set_attribute(const char *path, const char *name, const char *value, size_t size, int flags)
{
    PVFS_ds_keyval key = {.buffer = (void *)name, .buffer_sz = strlen(name) + 1};
    PVFS_ds_keyval val = {.buffer = (void *)value, .buffer_sz = size};
    pvfs_fuse_handle_t file;
    int error = lookup(path, &file, PVFS2_LOOKUP_LINK_FOLLOW);
    if (!error) {
        error = PVFS_sys_seteattr(file.ref, &file.cred, &key, &val, flags, NULL);
        pvfs_fuse_cleanup_credential(&file.cred);
    }
    return error ? PVFS_ERROR_TO_ERRNO_N(error) : 0;
}

static int get_attribute(const char *path, const char *name, char *value, size_t size)
{
    char found[PVFS_MAX_XATTR_VALUELEN];
    PVFS_ds_keyval key = {.buffer = (void *)name, .buffer_sz = strlen(name) + 1};
    PVFS_ds_keyval val = {.buffer = found, .buffer_sz = sizeof(found)};
    pvfs_fuse_handle_t file;
    int error = lookup(path, &file, PVFS2_LOOKUP_LINK_FOLLOW);
    if (!error) {
        error = PVFS_sys_geteattr(file.ref, &file.cred, &key, &val, NULL);
        pvfs_fuse_cleanup_credential(&file.cred);
    }
    if (error == -PVFS_ENOENT)
        return -ENODATA;
    if (error)
        return PVFS_ERROR_TO_ERRNO_N(error);
    if (size && (size_t)val.read_sz > size)
        return -ERANGE;
    if (size)
        memcpy(value, found, val.read_sz);
    return val.read_sz;
}

int main(int argc, char *argv[])
{
    pvfs_fuse_oper.setxattr = set_attribute;
    pvfs_fuse_oper.getxattr = get_attribute;
    return stock_main(argc, argv);
}
