/* Compares the checksum of pieces of every length and alignment, which a processor may have an instruction for, with
 * that by the table; prints both of "123456789". */
#include <stdio.h>

#include "../../replicator/stub/crc32c.c"

int main(void)
{
    static uint8_t bytes[512];
    uint32_t next = 1;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)((next = next * 1664525 + 1013904223) >> 24);
    for (size_t start = 0; start < 8; start++)
        for (size_t size = 0; start + size <= sizeof bytes; size++)
            if (crc32c(next, bytes + start, size) != ~by_table(~next, bytes + start, size))
                return 1;
    const uint8_t *digits = (const uint8_t *)"123456789";
    printf("%08x %08x\n", crc32c(0, digits, 9), ~by_table(UINT32_MAX, digits, 9));
    return 0;
}
