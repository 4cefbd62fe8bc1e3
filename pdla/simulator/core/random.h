/* Random numbers, the same in every run from the same state. */
#ifndef RANDOM_H
#define RANDOM_H

#include <stdint.h>

/* A number in [0, 1): splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014). */
static inline double random_share(uint64_t *state)
{
    uint64_t mixed = *state += 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
    return (double)((mixed ^ mixed >> 31) >> 11) * 0x1p-53;
}

#endif
