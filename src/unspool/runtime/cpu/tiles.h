/* Matrices of GGUF files in tiles, the order in which the products read them.
 *
 * A matrix [out, in] becomes tiles of 16 outputs × 32 inputs (256 for the K formats): the scales of all 16, then four
 * inputs of each output at a time. No bit is lost or added.
 */
enum { Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q4_K = 12, Q5_K = 13, Q6_K = 14 }; /* as GGUF numbers them */

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define BLOCK 32

INLINE int in_bytes(int kind) { return kind == Q5_0 || kind == Q5_1 || kind == Q8_0 || kind == Q5_K; }
INLINE int is_super(int kind) { return kind >= Q4_K; }
INLINE int has_least(int kind) { return kind == Q4_1 || kind == Q5_1 || kind == Q4_K || kind == Q5_K; }
INLINE int offset_of(int kind) {
    return kind == Q4_0 ? 8 : kind == Q5_0 ? 16 : kind == Q8_0 ? 128 : kind == Q6_K ? 32 : 0;
}
/* Bytes before the blocks of a tile of the K formats, and of each block of 32 inputs. */
INLINE int head_bytes(int kind) { return kind == Q6_K ? 32 : is_super(kind) ? 64 : 0; }
INLINE int scale_bytes(int kind) { return is_super(kind) || !has_least(kind) ? 32 : 64; }
INLINE int block_bytes(int kind) { return scale_bytes(kind) + (in_bytes(kind) ? 512 : kind == Q6_K ? 384 : 256); }

/* Bytes of a block in the file, which has 32 numbers or 256. */
INLINE int file_bytes(int kind) {
    return kind == Q4_0 ? 18 : kind == Q4_1 ? 20 : kind == Q5_0 ? 22 : kind == Q5_1 ? 24 : kind == Q8_0 ? 34
         : kind == Q4_K ? 144 : kind == Q5_K ? 176 : 210;
}
/* The scale and the least of one of the eight parts of a block of Q4_K or Q5_K, six bits each. */
INLINE uint8_t k_scale(const uint8_t *block, int part) {
    const uint8_t *s = block + 4;
    return part < 4 ? s[part] & 63 : (uint8_t)((s[part + 4] & 15) | (s[part - 4] >> 6) << 4);
}
INLINE uint8_t k_least(const uint8_t *block, int part) {
    const uint8_t *s = block + 4;
    return part < 4 ? s[part + 4] & 63 : (uint8_t)(s[part + 4] >> 4 | (s[part] >> 6) << 4);
}

/* How many bytes a matrix takes in tiles; 0 if the kind is not known or the inputs do not fill its blocks. */
long long tiled_bytes(int kind, long long out, long long in) {
    int known = kind == Q4_0 || kind == Q4_1 || (kind >= Q5_0 && kind <= Q8_0) || (kind >= Q4_K && kind <= Q6_K);
    if (!known || out < 1 || in < 1 || in % (is_super(kind) ? 256 : BLOCK)) return 0;
    long long tile = is_super(kind) ? head_bytes(kind) + 8 * block_bytes(kind) : block_bytes(kind);
    return (out + LANES - 1) / LANES * (in / (is_super(kind) ? 256 : BLOCK)) * tile;
}

INLINE uint32_t word(const uint8_t *p) {
    uint32_t x;
    memcpy(&x, p, 4);
    return x;
}

INLINE uint32_t nibbles(const uint8_t *p, int high) { return (high ? word(p) >> 4 : word(p)) & 0x0f0f0f0f; }

/* Four numbers of a block of 32, from 4·group on, one a byte, as the formats store them, without scale and offset. */
INLINE uint32_t numbers(int kind, const uint8_t *block, int part, int group) {
    const uint8_t *q = block;
    int at = 4 * group;
    switch (kind) {
    case Q4_0: case Q4_1: return nibbles(q + (kind == Q4_0 ? 2 : 4) + at % 16, at >= 16);
    case Q5_0: case Q5_1: {
        q += kind == Q5_0 ? 2 : 4;
        uint32_t fifth = word(q) >> at & 15; /* four bits, of which each goes to a byte of its own */
        fifth = (fifth & 1) | (fifth & 2) << 7 | (fifth & 4) << 14 | (fifth & 8) << 21;
        return nibbles(q + 4 + at % 16, at >= 16) | fifth << 4;
    }
    case Q8_0: return word(q + 2 + at) ^ 0x80808080;
    case Q4_K: return nibbles(q + 16 + part / 2 * 32 + at, part % 2);
    case Q5_K: return nibbles(q + 48 + part / 2 * 32 + at, part % 2) | (word(q + 16 + at) >> part & 0x01010101) << 4;
    default: { /* Q6_K: two halves of 128 numbers, each of four parts */
        int half = part / 4, quarter = part % 4;
        uint32_t high = word(q + 128 + half * 32 + at) >> 2 * quarter & 0x03030303;
        return nibbles(q + half * 64 + quarter % 2 * 32 + at, quarter >= 2) | high << 4;
    }
    }
}

INLINE void put(uint8_t *to, uint32_t x) { memcpy(to, &x, 4); }

/* 32 numbers of one output, in the places that are its own among those of 16. */
INLINE void tile_block(int kind, const uint8_t *block, int part, uint8_t *to) {
    uint32_t x[8];
    for (int g = 0; g < 8; g++) x[g] = numbers(kind, block, part, g);
    for (int g = 0; g < 8 && in_bytes(kind); g++) put(to + 64 * g, x[g]);
    for (int g = 0; g < 4 && !in_bytes(kind); g++) put(to + 64 * g, (x[g] & 0x0f0f0f0f) | (x[g + 4] & 0x0f0f0f0f) << 4);
    for (int e = 0; e < 2 && kind == Q6_K; e++) {
        uint32_t high = 0;
        for (int s = 0; s < 4; s++) high |= (x[2 * s + e] >> 4 & 0x03030303) << 2 * s;
        put(to + 256 + 64 * e, high);
    }
}

/* Four words of each of 16 outputs, which lie in its block from `at` on: the first word of all, then the second, …. */
INLINE void turn(const uint8_t *const *blocks, int at, uint32_t flip, uint8_t *to) {
#ifdef __SSE2__
    __m128i flips = _mm_set1_epi32((int)flip), x[4], y[4];
    for (int o = 0; o < LANES; o += 4) {
        for (int i = 0; i < 4; i++)
            x[i] = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(blocks[o + i] + at)), flips);
        y[0] = _mm_unpacklo_epi32(x[0], x[1]), y[1] = _mm_unpacklo_epi32(x[2], x[3]);
        y[2] = _mm_unpackhi_epi32(x[0], x[1]), y[3] = _mm_unpackhi_epi32(x[2], x[3]);
        for (int i = 0; i < 4; i += 2) {
            _mm_storeu_si128((__m128i *)(to + 64 * i + 4 * o), _mm_unpacklo_epi64(y[i], y[i + 1]));
            _mm_storeu_si128((__m128i *)(to + 64 * (i + 1) + 4 * o), _mm_unpackhi_epi64(y[i], y[i + 1]));
        }
    }
#else
    for (int o = 0; o < LANES; o++)
        for (int i = 0; i < 4; i++) put(to + 64 * i + 4 * o, word(blocks[o] + at + 4 * i) ^ flip);
#endif
}

/* 32 numbers of each of 16 outputs. In the plain formats a word of four bytes stays one, so whole words are turned. */
INLINE void tile_numbers(int kind, const uint8_t *const *blocks, int part, uint8_t *to) {
    if (kind == Q4_0 || kind == Q4_1) {
        turn(blocks, kind == Q4_0 ? 2 : 4, 0, to);
    } else if (kind == Q8_0) {
        turn(blocks, 2, 0x80808080, to);
        turn(blocks, 18, 0x80808080, to + 256);
    } else {
        for (int o = 0; o < LANES; o++) tile_block(kind, blocks[o], part, to + 4 * o);
    }
}

INLINE void tile_kind(const int kind, const uint8_t *from, int out, int in, uint8_t *to) {
    int super = is_super(kind), size = super ? 256 : BLOCK, parts = super ? 8 : 1, count = in / size, width = file_bytes(kind);
    static const uint8_t none[256] = {0};
    for (int first = 0; first < out; first += LANES)
        for (int b = 0; b < count; b++) {
            const uint8_t *blocks[LANES];
            for (int o = 0; o < LANES; o++) /* outputs that fill up the last tile have scales of zero */
                blocks[o] = first + o < out ? from + ((long long)(first + o) * count + b) * width : none;
            for (int o = 0; super && o < LANES; o++) {
                memcpy(to + 2 * o, blocks[o] + (kind == Q6_K ? 208 : 0), 2);
                if (kind != Q6_K) memcpy(to + 32 + 2 * o, blocks[o] + 2, 2);
            }
            to += head_bytes(kind);
            for (int part = 0; part < parts; part++) {
                for (int o = 0; o < LANES; o++) {
                    const uint8_t *block = blocks[o];
                    if (!super) {
                        memcpy(to + 2 * o, block, 2);
                        if (has_least(kind)) memcpy(to + 32 + 2 * o, block + 2, 2);
                    } else if (kind == Q6_K) {
                        to[o] = block[192 + 2 * part], to[LANES + o] = block[192 + 2 * part + 1];
                    } else {
                        to[o] = k_scale(block, part), to[LANES + o] = k_least(block, part);
                    }
                }
                to += scale_bytes(kind);
                tile_numbers(kind, blocks, part, to);
                to += block_bytes(kind) - scale_bytes(kind);
            }
        }
}

/* Lay a matrix out in tiles. */
void tile(int kind, const uint8_t *from, int out, int in, uint8_t *to) {
    switch (kind) { /* so that each has code of its own */
    case Q4_0: tile_kind(Q4_0, from, out, in, to); break;
    case Q4_1: tile_kind(Q4_1, from, out, in, to); break;
    case Q8_0: tile_kind(Q8_0, from, out, in, to); break;
    case Q4_K: tile_kind(Q4_K, from, out, in, to); break;
    case Q6_K: tile_kind(Q6_K, from, out, in, to); break;
    default: tile_kind(kind, from, out, in, to);
    }
}

/* One row of a matrix of the file in floats, by the operations of models/quant.py in their order. */
void decode(int kind, const uint8_t *row, int in, float *to) {
    int super = is_super(kind), parts = super ? 8 : 1;
    for (int b = 0; b < in / (super ? 256 : BLOCK); b++, row += file_bytes(kind)) {
        float d = half(row + (kind == Q6_K ? 208 : 0)), m = has_least(kind) ? half(row + 2) : 0;
        for (int part = 0; part < parts; part++)
            for (int g = 0; g < 8; g++) {
                uint32_t four = numbers(kind, row, part, g);
                float scale = d, least = m;
                if (kind == Q6_K) scale = (float)(int8_t)row[192 + 2 * part + g / 4] * d;
                else if (super) scale = (float)k_scale(row, part) * d, least = -((float)k_least(row, part) * m);
                for (int i = 0; i < 4; i++, four >>= 8, to++) {
                    *to = (float)((int)(four & 255) - offset_of(kind)) * scale;
                    if (has_least(kind)) *to += least;
                }
            }
    }
}
