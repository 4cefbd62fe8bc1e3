/* Simulates calls: quicker_way WAIT, with a line "calls replica original memory" for each phase on standard input: ns
 * of a call by either way, and whether the original is in memory. Prints for each phase the calls by the original, and
 * the ns that all calls took. */
#include <stdio.h>
#include <stdlib.h>

#include "../../replicator/stub/quicker_way.c"

int main(int count, char **words)
{
    struct quicker_way quicker;
    long calls, times[WAYS], memory;
    quicker_start(&quicker, count > 1 ? (uint32_t)atoi(words[1]) : 4);
    while (scanf("%ld %ld %ld %ld", &calls, &times[REPLICA], &times[ORIGINAL], &memory) == 4) {
        long original = 0, all = 0;
        for (long i = 0; i < calls; i++) {
            enum way way;
            const bool known = quicker_known(&quicker, &way);
            if (!known && quicker_is_due(&quicker))
                memory ? quicker_begin(&quicker) : quicker_decline(&quicker);
            if (!known)
                way = quicker.tried ? quicker_tries(&quicker) : quicker.way;
            original += way == ORIGINAL;
            all += times[way];
            if (quicker.tried)
                quicker_timed(&quicker, way, times[way]);
            else if (way == ORIGINAL)
                quicker_ticked(&quicker, times[way]);
        }
        printf("%ld %ld\n", original, all);
    }
    return 0;
}
