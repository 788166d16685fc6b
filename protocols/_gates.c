/* The loops of proofs of ANDs over all gates: what `kernels` has for any processor, for those with AVX2 and FMA, and two
of them for those with AVX-512 that count bits by an instruction (VPOPCNTDQ).

Gates are read where the protocol left them, part by part, and copied in tiles that stay in the cache: x, y and a last
word, which has left's terms or right's masks. Blocks are the 64 bits of a word (`verify_bits`), and arithmetic is
modulo p = 2^61 - 1. Secret: gates and sums. Known limit: look-ups are at secret places, as those of `kernels` are.
Public: shapes, tables, weights. Source: README section 7; for the transposition Warren, Hacker's Delight, section 7-3;
for the population count Mula, Kurz and Lemire (2018). */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define WORD 64
#define QUARTERS 4
#define KINDS 4
#define ROWS (QUARTERS * KINDS)
#define OCTETS 8
#define TILE 512 /* Words of a quarter at a time. */
#define TILED (QUARTERS * TILE)
#define PLACES (TILE + 8) /* From a quarter to the next: not a power of two, or all would be in one set of the cache. */

typedef uint64_t Loose __attribute__((aligned(1), may_alias)); /* Messages may lie anywhere. */

/* A record's gates as left or right knows them. Right has no z, and neither it nor all of left's have added terms. */
typedef struct {
    const Loose *x, *y, *mask, *z, *added;
    Py_ssize_t start, words;
} Part;

typedef struct {
    Part *parts;
    Py_ssize_t count;
    int left;
    Py_buffer *views;
    Py_ssize_t viewed;
} Gates;

typedef struct {
    uint64_t x[QUARTERS * PLACES], y[QUARTERS * PLACES], last[QUARTERS * PLACES];
} Tile;

#if defined(__x86_64__) && defined(__SIZEOF_INT128__)
#include <immintrin.h>
#define FAST __attribute__((target("avx2,fma,bmi,bmi2")))
#define FASTEST __attribute__((target("avx512f,avx512bw,avx512vpopcntdq,avx2,fma,bmi,bmi2")))
#define INLINE static inline __attribute__((always_inline))

typedef unsigned __int128 Wide;
typedef __m256i Vector;
typedef __m256d Reals;
typedef __m512i Vector8;
typedef __m512d Reals8;

static const uint64_t P = (UINT64_C(1) << 61) - 1;

static int runs_here(const char *variant)
{
    const int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    if (!strcmp(variant, "avx512"))
        return avx2 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vpopcntdq");
    return avx2 && !strcmp(variant, "avx2");
}

FAST INLINE void add_words(uint64_t *to, const Loose *words, Py_ssize_t skip, Py_ssize_t count)
{
    if (words)
        for (Py_ssize_t i = 0; i < count; i++)
            to[i] ^= words[skip + i];
}

/* Copies gates from `first` on to the places from `at` on, zeros where there are none. Parts before `from` end earlier;
   returns the first part that does not. */
FAST static Py_ssize_t copied(const Gates *gates, Py_ssize_t from, Py_ssize_t first, Py_ssize_t count, Tile *tile,
                              Py_ssize_t at)
{
    Py_ssize_t done = first, number = from;
    while (number < gates->count && gates->parts[number].start + gates->parts[number].words <= first)
        number++;
    const Py_ssize_t found = number;
    for (; number < gates->count && done < first + count; number++) {
        const Part *const part = &gates->parts[number];
        const Py_ssize_t skip = done - part->start, rest = part->words - skip, wanted = first + count - done;
        const Py_ssize_t words = rest < wanted ? rest : wanted, to = at + done - first;
        memcpy(tile->x + to, part->x + skip, words * sizeof *part->x);
        memcpy(tile->y + to, part->y + skip, words * sizeof *part->y);
        memcpy(tile->last + to, part->mask + skip, words * sizeof *part->mask);
        /* Left's last: z_i + r_i, and the terms that were added linearly; right's is r_{i+1}. */
        add_words(tile->last + to, part->z, skip, words);
        add_words(tile->last + to, part->added, skip, words);
        done += words;
    }
    const Py_ssize_t to = at + done - first, none = (first + count - done) * (Py_ssize_t)sizeof *tile->x;
    memset(tile->x + to, 0, none);
    memset(tile->y + to, 0, none);
    memset(tile->last + to, 0, none);
    return found;
}

/* Copies some words of each quarter, those of the first quarter first. `from` has a part for each quarter. */
static void load_quarters(const Gates *gates, Py_ssize_t from[QUARTERS], Py_ssize_t quarter, Py_ssize_t start,
                          Py_ssize_t count, Tile *tile)
{
    for (int number = 0; number < QUARTERS; number++)
        from[number] = copied(gates, from[number], number * quarter + start, count, tile, number * PLACES);
}

/* Pairs of blocks: population counts. */

#define LANES 4                                  /* Words in a vector. */
#define VECTORS 4                                /* Vectors of a bit that are counted at a time, */
#define GROUP (WORD * LANES * VECTORS)           /* which are those of so many words. */
#define GROUPS 255                               /* So many groups' counts have 16 bits: 256 each. */

typedef struct {
    Vector planes[6][WORD][VECTORS]; /* x, y and last ^ x y of left; x, y and last of right. */
    Vector counts[WORD][WORD / 4];   /* Of left's bit with four of right's: 16 numbers. */
    Tile tiles[2];
} Counting;

/* Transposes the 64 x 64 bit matrices of 64 vectors, one in each lane: bit j of row i comes to bit i of row j. */
FAST static void transpose(Vector rows[WORD][VECTORS], int at)
{
    uint64_t mask = UINT64_C(0xFFFFFFFF);
    for (int half = WORD / 2; half; half /= 2, mask ^= mask << half) {
        const Vector kept = _mm256_set1_epi64x((long long)mask);
        const __m128i by = _mm_cvtsi32_si128(half);
        for (int start = 0; start < WORD; start += 2 * half)
            for (int i = start; i < start + half; i++) {
                /* The upper row's high bits change places with the lower one's low bits. */
                Vector *const upper = &rows[i][at], *const lower = &rows[i + half][at];
                const Vector swap = _mm256_and_si256(_mm256_xor_si256(_mm256_srl_epi64(*upper, by), *lower), kept);
                *lower = _mm256_xor_si256(*lower, swap);
                *upper = _mm256_xor_si256(*upper, _mm256_sll_epi64(swap, by));
            }
    }
}

/* Takes a group's words from `start` on. Any word may be in any lane, as long as it is the same one on both sides. */
FAST static void take(Counting *room, Py_ssize_t start)
{
    for (int plane = 0; plane < 6; plane++) {
        const Tile *const tile = &room->tiles[plane / 3];
        const uint64_t *const rows[3] = {tile->x, tile->y, tile->last}, *const words = rows[plane % 3] + start;
        for (int vector = 0; vector < VECTORS; vector++) {
            for (int row = 0; row < WORD; row++) {
                const Py_ssize_t at = (vector * WORD + row) * LANES;
                Vector found = _mm256_loadu_si256((const Vector *)(words + at));
                if (plane == 2) {
                    const Vector x = _mm256_loadu_si256((const Vector *)(tile->x + start + at));
                    const Vector y = _mm256_loadu_si256((const Vector *)(tile->y + start + at));
                    found = _mm256_xor_si256(found, _mm256_and_si256(x, y));
                }
                room->planes[plane][row][vector] = found;
            }
            transpose(room->planes[plane], vector);
        }
    }
}

/* Each octet's number of ones. */
FAST INLINE Vector ones(Vector x)
{
    const Vector low = _mm256_set1_epi8(15);
    const Vector table = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    const Vector first = _mm256_shuffle_epi8(table, _mm256_and_si256(x, low));
    return _mm256_add_epi8(first, _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi64(x, 4), low)));
}

/* A group's minuses of left's bit i with right's bit j: at most 256 in each lane. (-1)^sign is half the sum of the four
   products of signs; on the diagonal, sign is a gate's error (README section 7, ANDs). */
FAST INLINE Vector minuses(const Counting *room, int i, int j)
{
    Vector found = _mm256_setzero_si256();
    for (int vector = 0; vector < VECTORS; vector++) {
        const Vector first = _mm256_and_si256(room->planes[0][i][vector], room->planes[4][j][vector]);
        const Vector second = _mm256_and_si256(room->planes[1][i][vector], room->planes[3][j][vector]);
        const Vector rest = _mm256_xor_si256(room->planes[2][i][vector], room->planes[5][j][vector]);
        found = _mm256_add_epi8(found, ones(_mm256_xor_si256(_mm256_xor_si256(first, second), rest)));
    }
    return _mm256_sad_epu8(found, _mm256_setzero_si256());
}

FAST static void count_group(Counting *room)
{
    for (int i = 0; i < WORD; i++)
        for (int four = 0; four < WORD / 4; four++) {
            const int j = 4 * four;
            const Vector low = _mm256_packus_epi32(minuses(room, i, j), minuses(room, i, j + 1));
            const Vector high = _mm256_packus_epi32(minuses(room, i, j + 2), minuses(room, i, j + 3));
            Vector *const to = &room->counts[i][four];
            *to = _mm256_add_epi16(*to, _mm256_packus_epi32(low, high));
        }
}

/* Adds the counts to the sums, and begins anew. */
static void add_counts(Counting *room, int64_t *found)
{
    for (int i = 0; i < WORD; i++)
        for (int four = 0; four < WORD / 4; four++) {
            uint16_t parts[16];
            memcpy(parts, &room->counts[i][four], sizeof parts);
            for (int part = 0; part < 16; part++)
                /* Each half of a vector has two numbers of each of the four. */
                found[i * WORD + 4 * four + part % 8 / 2] += parts[part];
        }
    memset(room->counts, 0, sizeof room->counts);
}

static void count_all(const Gates *left, const Gates *right, Py_ssize_t words, int64_t *found, Counting *room)
{
    memset(room->counts, 0, sizeof room->counts);
    Py_ssize_t from[2] = {0, 0};
    int groups = 0;
    for (Py_ssize_t start = 0; start < words; start += TILED) {
        from[0] = copied(left, from[0], start, TILED, &room->tiles[0], 0);
        from[1] = copied(right, from[1], start, TILED, &room->tiles[1], 0);
        for (Py_ssize_t group = 0; group < TILED && start + group < words; group += GROUP) {
            take(room, group);
            count_group(room);
            if (++groups == GROUPS) {
                add_counts(room, found);
                groups = 0;
            }
        }
    }
    add_counts(room, found);
}

/* The same with an instruction for population counts, of all words of a tile at a time. */

#define LANES8 8

typedef struct {
    Vector8 planes[6][WORD][VECTORS];
    Vector8 counts[WORD][WORD];
    Tile tiles[2];
} Counting8;

FASTEST static void transpose8(Vector8 rows[WORD][VECTORS], int at)
{
    uint64_t mask = UINT64_C(0xFFFFFFFF);
    for (int half = WORD / 2; half; half /= 2, mask ^= mask << half) {
        const Vector8 kept = _mm512_set1_epi64((long long)mask);
        const __m128i by = _mm_cvtsi32_si128(half);
        for (int start = 0; start < WORD; start += 2 * half)
            for (int i = start; i < start + half; i++) {
                Vector8 *const upper = &rows[i][at], *const lower = &rows[i + half][at];
                const Vector8 swap = _mm512_and_si512(_mm512_xor_si512(_mm512_srl_epi64(*upper, by), *lower), kept);
                *lower = _mm512_xor_si512(*lower, swap);
                *upper = _mm512_xor_si512(*upper, _mm512_sll_epi64(swap, by));
            }
    }
}

/* x ^ (y & z). */
FASTEST INLINE Vector8 xor_and(Vector8 x, Vector8 y, Vector8 z)
{
    return _mm512_ternarylogic_epi64(x, y, z, 0x78);
}

FASTEST static void take8(Counting8 *room)
{
    for (int plane = 0; plane < 6; plane++) {
        const Tile *const tile = &room->tiles[plane / 3];
        const uint64_t *const rows[3] = {tile->x, tile->y, tile->last}, *const words = rows[plane % 3];
        for (int vector = 0; vector < VECTORS; vector++) {
            for (int row = 0; row < WORD; row++) {
                const int at = (vector * WORD + row) * LANES8;
                Vector8 found = _mm512_loadu_si512(words + at);
                if (plane == 2)
                    found = xor_and(found, _mm512_loadu_si512(tile->x + at), _mm512_loadu_si512(tile->y + at));
                room->planes[plane][row][vector] = found;
            }
            transpose8(room->planes[plane], vector);
        }
    }
}

/* Adds the minuses of the tile's words. Two of left's bits at a time, so that right's are read half as often. */
FASTEST static void count_tile(Counting8 *room)
{
    for (int i = 0; i < WORD; i += 2) {
        Vector8 x[2][VECTORS], y[2][VECTORS], last[2][VECTORS];
        for (int row = 0; row < 2; row++)
            for (int vector = 0; vector < VECTORS; vector++) {
                x[row][vector] = room->planes[0][i + row][vector];
                y[row][vector] = room->planes[1][i + row][vector];
                last[row][vector] = room->planes[2][i + row][vector];
            }
        for (int j = 0; j < WORD; j++) {
            Vector8 found[2] = {room->counts[i][j], room->counts[i + 1][j]};
            for (int vector = 0; vector < VECTORS; vector++) {
                const Vector8 of_x = room->planes[3][j][vector], of_y = room->planes[4][j][vector];
                const Vector8 of_last = room->planes[5][j][vector];
                for (int row = 0; row < 2; row++) {
                    const Vector8 rest = _mm512_xor_si512(last[row][vector], of_last);
                    const Vector8 sign = xor_and(xor_and(rest, x[row][vector], of_y), y[row][vector], of_x);
                    found[row] = _mm512_add_epi64(found[row], _mm512_popcnt_epi64(sign));
                }
            }
            room->counts[i][j] = found[0];
            room->counts[i + 1][j] = found[1];
        }
    }
}

FASTEST static void count_all8(const Gates *left, const Gates *right, Py_ssize_t words, int64_t *found, Counting8 *room)
{
    _Static_assert(TILED == WORD * LANES8 * VECTORS, "a tile is one group");
    memset(room->counts, 0, sizeof room->counts);
    Py_ssize_t from[2] = {0, 0};
    for (Py_ssize_t start = 0; start < words; start += TILED) {
        from[0] = copied(left, from[0], start, TILED, &room->tiles[0], 0);
        from[1] = copied(right, from[1], start, TILED, &room->tiles[1], 0);
        take8(room);
        count_tile(room);
    }
    for (int i = 0; i < WORD; i++)
        for (int j = 0; j < WORD; j++)
            found[i * WORD + j] += _mm512_reduce_add_epi64(room->counts[i][j]);
}

/* Sums of signs. Kind k of left is h + k v, that of right g + q(k + w), with h and g the last bits (`sign_tables`). So
   right's kinds are those of left with x y more, and for k = (1, 1) with 1 more. */

INLINE uint64_t looked_up(const uint64_t *tables, uint64_t word)
{
    uint64_t total = 0;
    for (int octet = 0; octet < OCTETS; octet++, word >>= 8)
        total += tables[256 * octet + (word & 255)];
    return total;
}

INLINE void sums_of(const Tile *tile, Py_ssize_t at, int left, const uint64_t *tables, uint64_t found[KINDS])
{
    const uint64_t x = tile->x[at], y = tile->y[at], last = left ? tile->last[at] : tile->last[at] ^ (x & y);
    found[0] = looked_up(tables, last);
    found[1] = looked_up(tables, last ^ x);
    found[2] = looked_up(tables, last ^ y);
    found[3] = looked_up(tables, left ? last ^ x ^ y : ~(last ^ x ^ y));
}

INLINE uint64_t reduced(Wide x)
{
    /* 2^61 = 1 modulo p: bits 0 to 60, 61 to 121, and 122 to 127 are added up. */
    uint64_t found = ((uint64_t)x & P) + ((uint64_t)(x >> 61) & P) + (uint64_t)(x >> 122);
    found = (found & P) + (found >> 61);
    return found >= P ? found - P : found;
}

FAST static void fold_all(const Gates *gates, Py_ssize_t quarter, const uint64_t *tables, const uint64_t *weights,
                          uint64_t *found, Tile *tile)
{
    Py_ssize_t from[QUARTERS] = {0};
    uint64_t sums[KINDS];
    for (Py_ssize_t start = 0; start < quarter; start += TILE) {
        const Py_ssize_t count = quarter - start < TILE ? quarter - start : TILE;
        load_quarters(gates, from, quarter, start, count, tile);
        for (Py_ssize_t column = 0; column < count; column++) {
            Wide total = 0;
            for (int number = 0; number < QUARTERS; number++) {
                sums_of(tile, number * PLACES + column, gates->left, tables, sums);
                /* 16 products of numbers below 2^61 + 8 are far below 2^128. */
                for (int kind = 0; kind < KINDS; kind++)
                    total += (Wide)((sums[kind] & P) + (sums[kind] >> 61)) * weights[number * KINDS + kind];
            }
            found[start + column] = reduced(total);
        }
    }
}

/* Products of sums of signs. A sum is d_0 + 2^21 d_1 + 2^42 d_2 with |d| < 2^21. Six products of digits and sums of two
   digits make the five coefficients of a product. They are below 2^44: in float64 the sums of 512 are exact. */

#define DIGITS 3
#define APART 21
#define TERMS 6
#define COLUMNS 32

typedef struct {
    double left[TERMS][COLUMNS + 1][ROWS], right[TERMS][COLUMNS + 1][ROWS], sums[TERMS][ROWS][ROWS];
    Tile tiles[2];
} Multiplying;

/* Writes the terms of columns' sums. `tables` have the sums of the factors whose bits are ones, which are negative. */
FAST static void spread(const Tile *tile, Py_ssize_t start, Py_ssize_t count, int left, const uint64_t *tables,
                        double to[TERMS][COLUMNS + 1][ROWS])
{
    const uint64_t low = (UINT64_C(1) << APART) - 1, all = looked_up(tables, ~UINT64_C(0));
    const Vector mask = _mm256_set1_epi64x((long long)low), exponent = _mm256_set1_epi64x(0x4330000000000000);
    const Reals one = _mm256_castsi256_pd(exponent), twice = _mm256_set1_pd(-2); /* one is 2^52. */
    for (Py_ssize_t column = 0; column < count; column++)
        for (int number = 0; number < QUARTERS; number++) {
            uint64_t sums[KINDS];
            Reals digits[DIGITS];
            sums_of(tile, number * PLACES + start + column, left, tables, sums);
            const Vector of = _mm256_loadu_si256((const Vector *)sums);
            for (int digit = 0; digit < DIGITS; digit++) {
                const Vector part = _mm256_and_si256(_mm256_srli_epi64(of, APART * digit), mask);
                const Reals ones = _mm256_sub_pd(_mm256_castsi256_pd(_mm256_or_si256(part, exponent)), one);
                digits[digit] = _mm256_fmadd_pd(twice, ones, _mm256_set1_pd((double)(all >> APART * digit & low)));
            }
            const Reals terms[TERMS] = {digits[0], digits[1], digits[2], _mm256_add_pd(digits[0], digits[1]),
                                        _mm256_add_pd(digits[0], digits[2]), _mm256_add_pd(digits[1], digits[2])};
            for (int term = 0; term < TERMS; term++)
                _mm256_storeu_pd(&to[term][column][number * KINDS], terms[term]);
        }
}

/* Adds the products of all rows, 4 by 8 at a time. */
FAST static void multiply(const double left[COLUMNS][ROWS], const double right[COLUMNS][ROWS], Py_ssize_t count,
                          double sums[ROWS][ROWS])
{
    for (int i = 0; i < ROWS; i += 4)
        for (int j = 0; j < ROWS; j += 8) {
            Reals found[4][2];
            for (int row = 0; row < 4; row++)
                for (int half = 0; half < 2; half++)
                    found[row][half] = _mm256_loadu_pd(&sums[i + row][j + 4 * half]);
            for (Py_ssize_t column = 0; column < count; column++) {
                const Reals first = _mm256_loadu_pd(&right[column][j]), second = _mm256_loadu_pd(&right[column][j + 4]);
                for (int row = 0; row < 4; row++) {
                    const Reals x = _mm256_broadcast_sd(&left[column][i + row]);
                    found[row][0] = _mm256_fmadd_pd(x, first, found[row][0]);
                    found[row][1] = _mm256_fmadd_pd(x, second, found[row][1]);
                }
            }
            for (int row = 0; row < 4; row++)
                for (int half = 0; half < 2; half++)
                    _mm256_storeu_pd(&sums[i + row][j + 4 * half], found[row][half]);
        }
}

FASTEST static void multiply8(const double left[COLUMNS][ROWS], const double right[COLUMNS][ROWS], Py_ssize_t count,
                              double sums[ROWS][ROWS])
{
    enum { TOGETHER = 8 };
    for (int i = 0; i < ROWS; i += TOGETHER) {
        Reals8 found[TOGETHER][2];
        for (int row = 0; row < TOGETHER; row++)
            for (int half = 0; half < 2; half++)
                found[row][half] = _mm512_loadu_pd(&sums[i + row][8 * half]);
        for (Py_ssize_t column = 0; column < count; column++) {
            const Reals8 first = _mm512_loadu_pd(&right[column][0]), second = _mm512_loadu_pd(&right[column][8]);
            for (int row = 0; row < TOGETHER; row++) {
                const Reals8 x = _mm512_set1_pd(left[column][i + row]);
                found[row][0] = _mm512_fmadd_pd(x, first, found[row][0]);
                found[row][1] = _mm512_fmadd_pd(x, second, found[row][1]);
            }
        }
        for (int row = 0; row < TOGETHER; row++)
            for (int half = 0; half < 2; half++)
                _mm512_storeu_pd(&sums[i + row][8 * half], found[row][half]);
    }
}

/* Adds the sums of products of digits to those modulo p, and begins anew. */
static void add_sums(Multiplying *room, uint64_t *found)
{
    for (int at = 0; at < ROWS * ROWS; at++) {
        __int128 of[TERMS];
        for (int term = 0; term < TERMS; term++)
            of[term] = (int64_t)room->sums[term][at / ROWS][at % ROWS];
        const __int128 first = of[3] - of[0] - of[1], third = of[5] - of[1] - of[2];
        const __int128 second = of[4] - of[0] - of[2] + of[1];
        /* 2^63 is 4 and 2^84 is 2^23 modulo p. A multiple of p that is larger than all of it makes it positive. */
        const __int128 total = of[0] + 4 * third + first * (1 << APART) + of[2] * (1 << 23)
                               + second * ((int64_t)1 << 2 * APART) + ((__int128)P << 56);
        found[at] = reduced((Wide)total + found[at]);
    }
    memset(room->sums, 0, sizeof room->sums);
}

static void multiply_all(const Gates *left, const Gates *right, Py_ssize_t quarter, const uint64_t *left_tables,
                         const uint64_t *right_tables, uint64_t *found, Multiplying *room, int wide)
{
    Py_ssize_t from[2][QUARTERS] = {{0}};
    memset(room->sums, 0, sizeof room->sums);
    for (Py_ssize_t start = 0; start < quarter; start += TILE) {
        const Py_ssize_t count = quarter - start < TILE ? quarter - start : TILE;
        load_quarters(left, from[0], quarter, start, count, &room->tiles[0]);
        load_quarters(right, from[1], quarter, start, count, &room->tiles[1]);
        for (Py_ssize_t column = 0; column < count; column += COLUMNS) {
            const Py_ssize_t some = count - column < COLUMNS ? count - column : COLUMNS;
            spread(&room->tiles[0], column, some, 1, left_tables, room->left);
            spread(&room->tiles[1], column, some, 0, right_tables, room->right);
            for (int term = 0; term < TERMS; term++)
                (wide ? multiply8 : multiply)(room->left[term], room->right[term], some, room->sums[term]);
        }
        add_sums(room, found);
    }
}

/* From and to Python. */

static void release(Gates *gates)
{
    while (gates->viewed)
        PyBuffer_Release(&gates->views[--gates->viewed]);
    PyMem_Free(gates->views);
    PyMem_Free(gates->parts);
}

/* Returns an array's words, of which there have to be `count`, or any number at -1. NULL with an exception set. */
static const Loose *words_of(Gates *gates, PyObject *array, Py_ssize_t count)
{
    Py_buffer *const view = &gates->views[gates->viewed];
    if (PyObject_GetBuffer(array, view, PyBUF_SIMPLE))
        return NULL;
    gates->viewed++;
    const Py_ssize_t words = view->len / (Py_ssize_t)sizeof(uint64_t);
    if (view->len % (Py_ssize_t)sizeof(uint64_t) == 0 && (count < 0 || words == count))
        return view->buf;
    PyErr_Format(PyExc_ValueError, "an array of a part has %zd bytes; expected whole words, as many as all others",
                 view->len);
    return NULL;
}

/* Fills a part from (x, y, mask, z, added), of which right's parts have the first three. */
static int filled_part(Gates *gates, PyObject *tuple, Py_ssize_t start)
{
    Part *const part = &gates->parts[gates->count];
    const Loose **const to[] = {&part->x, &part->y, &part->mask, &part->z, &part->added};
    part->start = start;
    part->words = -1;
    for (Py_ssize_t number = 0; number < (gates->left ? 5 : 3); number++) {
        PyObject *const array = PyTuple_GetItem(tuple, number);
        if (!array)
            return 0;
        if (number == 4 && array == Py_None)
            continue;
        if (!(*to[number] = words_of(gates, array, part->words)))
            return 0;
        part->words = gates->views[gates->viewed - 1].len / (Py_ssize_t)sizeof(uint64_t);
    }
    gates->count++;
    return 1;
}

/* Fills the gates from a list of parts in their order. Returns 0 with an exception set; to be released either way. */
static int filled_gates(Gates *gates, PyObject *list, int left)
{
    const Py_ssize_t count = PyList_Size(list);
    Py_ssize_t start = 0;
    memset(gates, 0, sizeof *gates);
    gates->left = left;
    if (count < 0)
        return 0;
    gates->parts = PyMem_Calloc(count + 1, sizeof *gates->parts);
    gates->views = PyMem_Calloc(5 * count + 1, sizeof *gates->views);
    if (!gates->parts || !gates->views) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t number = 0; number < count; number++) {
        if (!filled_part(gates, PyList_GetItem(list, number), start))
            return 0;
        start += gates->parts[number].words;
    }
    return 1;
}

static int sized(const Py_buffer *view, const char *name, Py_ssize_t words)
{
    if (view->len == words * (Py_ssize_t)sizeof(uint64_t))
        return 1;
    PyErr_Format(PyExc_ValueError, "%s has %zd bytes; expected %zd words", name, view->len, words);
    return 0;
}

static char *aligned(char *memory)
{
    return memory + (sizeof(Vector8) - (uintptr_t)memory % sizeof(Vector8));
}

/* Returns 1 for loops of 512 bits, 0 for those of 256, -1 with an exception set for a variant that does not run here. */
static int is_wide(const char *variant)
{
    if (runs_here(variant))
        return !strcmp(variant, "avx512");
    PyErr_Format(PyExc_ValueError, "variant %s does not run here", variant);
    return -1;
}

static PyObject *count(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *lists[2], *done = NULL;
    Py_ssize_t words;
    Py_buffer found;
    const char *variant;
    Gates left = {0}, right = {0};
    if (!PyArg_ParseTuple(arguments, "OOnw*s:count", &lists[0], &lists[1], &words, &found, &variant))
        return NULL;
    const int wide = is_wide(variant);
    char *const memory = PyMem_Malloc((wide ? sizeof(Counting8) : sizeof(Counting)) + sizeof(Vector8));
    if (!memory)
        PyErr_NoMemory();
    else if (wide >= 0 && sized(&found, "found", WORD * WORD) && filled_gates(&left, lists[0], 1)
             && filled_gates(&right, lists[1], 0)) {
        Py_BEGIN_ALLOW_THREADS
        if (wide)
            count_all8(&left, &right, words, found.buf, (Counting8 *)aligned(memory));
        else
            count_all(&left, &right, words, found.buf, (Counting *)aligned(memory));
        Py_END_ALLOW_THREADS
        done = Py_NewRef(Py_None);
    }
    release(&left);
    release(&right);
    PyMem_Free(memory);
    PyBuffer_Release(&found);
    return done;
}

static PyObject *multiply_sums(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *lists[2], *done = NULL;
    Py_ssize_t quarter;
    Py_buffer left_tables, right_tables, found;
    const char *variant;
    Gates left = {0}, right = {0};
    if (!PyArg_ParseTuple(arguments, "OOny*y*w*s:multiply", &lists[0], &lists[1], &quarter, &left_tables, &right_tables,
                          &found, &variant))
        return NULL;
    const int wide = is_wide(variant);
    char *const memory = PyMem_Malloc(sizeof(Multiplying) + sizeof(Vector8));
    if (!memory)
        PyErr_NoMemory();
    else if (wide >= 0 && sized(&left_tables, "left_tables", OCTETS * 256) && sized(&right_tables, "right_tables", OCTETS * 256)
             && sized(&found, "found", ROWS * ROWS) && filled_gates(&left, lists[0], 1)
             && filled_gates(&right, lists[1], 0)) {
        Py_BEGIN_ALLOW_THREADS
        multiply_all(&left, &right, quarter, left_tables.buf, right_tables.buf, found.buf,
                     (Multiplying *)aligned(memory), wide);
        Py_END_ALLOW_THREADS
        done = Py_NewRef(Py_None);
    }
    release(&left);
    release(&right);
    PyMem_Free(memory);
    PyBuffer_Release(&left_tables);
    PyBuffer_Release(&right_tables);
    PyBuffer_Release(&found);
    return done;
}

static PyObject *fold(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *list, *done = NULL;
    int left;
    Py_ssize_t quarter;
    Py_buffer tables, weights, found;
    Gates gates = {0};
    if (!PyArg_ParseTuple(arguments, "Opny*y*w*:fold", &list, &left, &quarter, &tables, &weights, &found))
        return NULL;
    Tile *const tile = PyMem_Malloc(sizeof *tile);
    if (!tile)
        PyErr_NoMemory();
    else if (sized(&tables, "tables", OCTETS * 256) && sized(&weights, "weights", ROWS)
             && sized(&found, "found", quarter) && filled_gates(&gates, list, left)) {
        Py_BEGIN_ALLOW_THREADS
        fold_all(&gates, quarter, tables.buf, weights.buf, found.buf, tile);
        Py_END_ALLOW_THREADS
        done = Py_NewRef(Py_None);
    }
    release(&gates);
    PyMem_Free(tile);
    PyBuffer_Release(&tables);
    PyBuffer_Release(&weights);
    PyBuffer_Release(&found);
    return done;
}

static PyMethodDef methods[] = {
    {"count", count, METH_VARARGS, "Adds the minuses of left's 64 blocks with right's to found (64, 64)."},
    {"multiply", multiply_sums, METH_VARARGS, "Adds the products of the second step to found (16, 16), modulo p."},
    {"fold", fold, METH_VARARGS, "Writes the folded vector of both steps to found (quarter,), modulo p."},
    {NULL, NULL, 0, NULL},
};
#else
static int runs_here(const char *Py_UNUSED(variant))
{
    return 0;
}

static PyMethodDef methods[] = {{NULL, NULL, 0, NULL}};
#endif

#define OWN_KINDS
#include "_variants.h"

static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_variants}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_gates", "Loops of proofs of ANDs over all gates.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__gates(void)
{
    return PyModuleDef_Init(&definition);
}
