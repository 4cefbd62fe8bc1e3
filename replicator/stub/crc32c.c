#include <pthread.h>
#include <string.h>

#include "loadedmap.h"

static uint32_t table[8][256];
static pthread_once_t table_made = PTHREAD_ONCE_INIT;

static void make_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? UINT32_C(0x82F63B78) : 0);
        table[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int slice = 1; slice < 8; slice++)
            table[slice][i] = (table[slice - 1][i] >> 8) ^ table[0][table[slice - 1][i] & 255];
}

/* Eight bytes a step: every start of a program checks its table of up to 10^7 extents. */
static uint32_t by_table(uint32_t crc, const uint8_t *at, size_t size)
{
    pthread_once(&table_made, make_table);
    for (; size >= 8; size -= 8, at += 8) {
        crc ^= (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        crc = table[7][crc & 255] ^ table[6][crc >> 8 & 255] ^ table[5][crc >> 16 & 255] ^ table[4][crc >> 24]
            ^ table[3][at[4]] ^ table[2][at[5]] ^ table[1][at[6]] ^ table[0][at[7]];
    }
    for (; size > 0; size--, at++)
        crc = (crc >> 8) ^ table[0][(crc ^ *at) & 255];
    return crc;
}

#ifdef __x86_64__
/* RATIONALE: most processors have an instruction for it, which takes a quarter of the time. */
__attribute__((target("sse4.2,crc32"))) static uint32_t by_instruction(uint32_t crc, const uint8_t *at, size_t size)
{
    uint64_t word, all = crc;
    for (; size >= sizeof word; size -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        all = __builtin_ia32_crc32di(all, word);
    }
    for (crc = (uint32_t)all; size > 0; size--, at++)
        crc = __builtin_ia32_crc32qi(crc, *at);
    return crc;
}
#endif

uint32_t crc32c(uint32_t crc, const void *bytes, size_t size)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2"))
        return ~by_instruction(~crc, bytes, size);
#endif
    return ~by_table(~crc, bytes, size);
}
